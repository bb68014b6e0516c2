"""All that is wrong with a project is said at once: each error by its file, with its code."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raising import raises_code

from headwater import testing
from headwater.errors import HeadwaterError
from headwater.errors.several import SeveralErrors
from headwater.planner import analysis
from headwater.project.load import load_project

RAW = "import headwater as hw\nraw = hw.topic('raw')\n"
TABLE = """import headwater as hw

@hw.table(source="{0}", decode=hw.json("n INT"))
def {1}(raw):
    return raw
"""
WRONG = {
    "bronze/raw.py": RAW,
    "silver/typed.py": "import headwater as hw\n\nthis is no Python\n",
    "silver/fails.py": "import headwater as hw\n\ndef ask():\n    return {}['nothing']\n\nask()\n",
    "gold/lost.py": TABLE.format("bronze.rew", "lost"),
    "gold/below.py": TABLE.format("silver.of_a_file_that_fails", "below"),
    "gold/round.py": TABLE.format("gold.round", "round"),
    "quality/gold.lsot.json": '{"name": "x", "expectations": []}',
    "quality/gold.lost.json": "{",
}
CODES = {
    ("silver/fails.py", "MODULE_FAILED"),
    ("silver/typed.py", "MODULE_FAILED"),
    ("gold/lost.py", "UNKNOWN_SOURCE"),
    ("gold/round.py", "NOT_BRONZE"),
    ("gold/round.py", "DEFINITIONS_CYCLE"),
    ("quality/gold.lost.json", "SUITE_INVALID"),
    ("quality/gold.lsot.json", "SUITE_WITHOUT_TABLE"),
}


def made(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"conf/local.yaml": "kafka: embedded\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def of(errors: SeveralErrors, root: Path) -> set[tuple[str, str]]:
    return {(str(Path(error.file or "").relative_to(root)), error.code) for error in errors.errors}


def test_every_error_is_said_and_nothing_that_follows_from_one(tmp_path: Path) -> None:
    root = made(tmp_path, WRONG)
    with pytest.raises(SeveralErrors) as found:
        load_project(root)
    assert of(found.value, root) == CODES and found.value.exit_code == 2
    text = str(found.value)
    assert "silver/fails.py:4: KeyError" in text and "silver/typed.py:3: SyntaxError" in text
    again = pickle.loads(pickle.dumps(found.value))
    assert str(again) == text and [error.data() for error in again.errors] == [
        error.data() for error in found.value.errors
    ]


def test_one_error_is_itself(tmp_path: Path) -> None:
    root = made(tmp_path, {"bronze/raw.py": RAW, "gold/lost.py": WRONG["gold/lost.py"]})
    with raises_code("UNKNOWN_SOURCE", file="gold/lost.py") as found:
        load_project(root)
    assert not isinstance(found.value, SeveralErrors)


def test_every_key_of_a_configuration_is_said(tmp_path: Path) -> None:
    root = made(tmp_path, {"bronze/raw.py": RAW})
    (root / "conf/local.yaml").write_text("broker: {port: x, heep: 1g}\nkafka: 5\ncores: 0\nlaek: there\n")
    with pytest.raises(SeveralErrors) as found:
        load_project(root)
    said = [str(error).removeprefix(f"{root}/conf/local.yaml: ") for error in found.value.errors]
    assert {line.split("'")[1].split(".literal")[0] for line in said} == {
        *("kafka", "broker.port", "broker.heep", "cores", "laek"),
    }
    assert {error.code for error in found.value.errors} == {"CONF_INVALID"}


def test_the_command_says_each_in_a_line(tmp_path: Path) -> None:
    root = made(tmp_path, WRONG)
    command = [sys.executable, "-m", "headwater", "ls", "--json", "--project", str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == len(CODES) and all(line.startswith("headwater: ") for line in lines)
    assert {line.rpartition("[")[2].rstrip("]") for line in lines} == {code for _, code in CODES}
    assert [json.loads(line)["code"] for line in done.stdout.splitlines()] == [
        line.rpartition("[")[2].rstrip("]") for line in lines
    ]


def test_every_definition_that_can_be_is_analysed(tmp_path: Path, interpreted: SparkSession) -> None:
    sql = "CREATE STREAMING TABLE {} AS SELECT {} FROM STREAM {}"
    files = {
        "bronze/raw.py": RAW,
        "silver/a.py": TABLE.format("bronze.raw", "a"),
        "gold/b.sql": sql.format("gold.b", "nothing", "silver.a"),
        "gold/c.sql": sql.format("gold.c", "nothing + 1 AS n", "gold.b"),
        "gold/d.sql": sql.format("gold.d", "window.start, count(*) AS n", "silver.a")
        + " GROUP BY window(_source.offset, '1 minute')",
        "gold/e.sql": sql.format("gold.e", "n", "silver.a"),
    }
    case = testing.Project(files, tmp_path, spark=interpreted)
    with pytest.raises(HeadwaterError) as found:
        analysis.analyse(interpreted, case.definitions)
    assert isinstance(found.value, SeveralErrors)
    assert {name for name, _ in of(found.value, tmp_path)} == {"gold/b.sql", "gold/d.sql"}
