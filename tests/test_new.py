"""`headwater init`: what it writes runs, and refuses to write over anything."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from commands import call
from pydantic import BaseModel
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.project import conf
from headwater.project.load import load_project
from headwater.project.new import TEMPLATE, new


def test_what_it_writes_is_a_project(tmp_path: Path) -> None:
    done = call(["init", "shop"], tmp_path)
    assert done.returncode == 0 and "cd shop" in done.stdout
    written = {
        str(path.relative_to(tmp_path / "shop"))
        for path in (tmp_path / "shop").rglob("*.*")
        if path.is_file()
    }
    assert written >= {
        ".gitignore",
        "conf/local.yaml",
        "gold/revenue_1m.sql",
        "tests/test_orders.py",
        "README.md",
    }
    project = load_project(tmp_path / "shop")
    assert list(project.names()) == ["bronze.orders", "silver.orders", "gold.revenue_1m"]
    assert list(project.suites) == ["silver.orders"]


def test_it_refuses_a_folder_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    new(tmp_path / "shop")
    with raises_code("FOLDER_NOT_EMPTY", match="shop: it is there, and not an empty folder"):
        new(tmp_path / "shop")
    (tmp_path / "file").touch()
    with raises_code("FOLDER_NOT_EMPTY"):
        new(tmp_path / "file")


def test_its_configuration_has_every_key_and_none_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (TEMPLATE / "conf" / "local.yaml").read_text()
    assert conf.Conf.model_validate(yaml.safe_load(text)).kafka == "embedded"
    for variable in re.findall(r"env:(\w+)", text):
        monkeypatch.setenv(variable, "x")
    (tmp_path / "conf").mkdir()
    shown = re.sub(r"^#(?=\S|  )", "", text, flags=re.MULTILINE).replace("kafka: embedded\n", "")
    (tmp_path / "conf" / "local.yaml").write_text(shown)
    found = conf.load(tmp_path, "local")
    sections: dict[str, type[BaseModel]] = {
        "broker": conf.Broker,
        "duckdb": conf.DuckDB,
        "maintain": conf.Maintenance,
    }
    raw = yaml.safe_load(shown)
    assert raw.keys() == conf.Conf.model_fields.keys()
    assert all(raw[name].keys() == section.model_fields.keys() for name, section in sections.items())
    plain = {name for name, value in raw.items() if not isinstance(value, dict)}
    defaults = conf.Conf()
    assert {name for name in plain - {"lake"} if getattr(found, name) != getattr(defaults, name)} == set()
    assert found.duckdb == defaults.duckdb and found.broker.heap == defaults.broker.heap
    assert (found.maintain.keep, found.maintain.every, found.maintain.checkpoint) == (
        defaults.maintain.keep, defaults.maintain.every, defaults.maintain.checkpoint,
    )  # fmt: skip


def test_its_own_tests_pass(interpreted: SparkSession, tmp_path: Path) -> None:
    new(tmp_path)
    spec = importlib.util.spec_from_file_location("test_of_new", tmp_path / "tests" / "test_orders.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [test for name, test in vars(module).items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()
