"""What analysis has told is kept: a warm answer is the cold one, whatever it depends on was edited."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.planner import analysis, dependencies, outlines
from headwater.planner.changes import plan
from headwater.project import imports
from headwater.project.load import load_project
from headwater.query.inspect.describe import describe
from headwater.runtime import cache, sessions

FILES = {
    "project/conf/local.yaml": "kafka: embedded\n",
    "project/conf/reference/hosts.csv": "host,rack\na,1\n",
    "project/conf/reference/hosts.ddl": "host STRING, rack INT\n",
    "project/helping.py": "NAME = 'machine'\n",
    "project/bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "project/silver/names.txt": "kind",
    "project/silver/readings.py": """from pathlib import Path
import headwater as hw, helping, packaged, shared
from pyspark.sql import functions as F

@hw.table(source="bronze.raw", decode=hw.json("host STRING, n INT"))
def readings(raw):
    more = [shared.NAME, Path(__file__).with_name("names.txt").read_text()]
    typed = raw.withColumnRenamed("host", helping.NAME).withColumn("n", raw.n.cast(packaged.TYPE))
    return typed.select("*", *(F.lit(1).alias(name) for name in more))
""",
    "project/gold/racks.py": """import headwater as hw

@hw.materialized_view(source=["bronze.raw", "reference.hosts"], keys=["rack"])
def racks(raw, hosts):
    return hosts.join(raw, hosts.host == raw.topic).groupBy("rack").count()
""",
    "elsewhere/shared.py": "NAME = 'shared'\n",
    "packages/packaged.py": "TYPE = 'int'\n",
    "packages/packaged-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: packaged\nVersion: 1.0\n",
}
TABLES = ("silver.readings", "gold.racks")
MODULES = ("helping", "packaged", "shared")


def another_version(root: Path) -> None:
    packages = root / "packages"
    (packages / "packaged-1.0.dist-info").rename(packages / "packaged-2.0.dist-info")
    replace(packages / "packaged.py", "int", "bigint")


EDITS: dict[str, Callable[[Path], object]] = {
    "definition": lambda root: replace(root / "project/silver/readings.py", "n INT", "n INT, m DOUBLE"),
    "helper module": lambda root: replace(root / "project/helping.py", "machine", "computer"),
    "module of elsewhere": lambda root: replace(root / "elsewhere/shared.py", "'shared'", "'common'"),
    "file beside a definition": lambda root: replace(root / "project/silver/names.txt", "kind", "sort"),
    "conf": lambda root: replace(root / "project/conf/local.yaml", "embedded", "{bootstrap.servers: 'a:1'}"),
    "reference table": lambda root: replace(root / "project/conf/reference/hosts.ddl", "INT", "STRING"),
    "rows of a reference table": lambda root: replace(
        root / "project/conf/reference/hosts.csv", "a,1", "a,2"
    ),
    "package version": another_version,
}


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a project, a folder of modules, and one of packages."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second would not be seen
    for folder in ("project", "elsewhere", "packages"):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
    others = imports._others()
    monkeypatch.setattr(imports, "_others", lambda: (*others, f"{tmp_path / 'packages'}/"))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    yield tmp_path
    begin()


def begin() -> None:
    """As a process that has just begun: nothing is in its memory."""
    for name in MODULES:
        sys.modules.pop(name, None)
    analysis._KNOWN.clear()
    dependencies._installed.cache_clear()
    cache._answers.cache_clear()


def depends_on(root: Path) -> str:
    begin()
    return dependencies.everywhere(load_project(root / "project"))


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_kept_is_another_after_each_edit(root: Path, edit: str) -> None:
    before = depends_on(root)
    assert depends_on(root) == before
    EDITS[edit](root)
    assert depends_on(root) != before


def test_the_engines_own_code_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = depends_on(root)
    monkeypatch.setattr(dependencies, "_engine", lambda: root / "elsewhere")
    assert depends_on(root) != before


def test_a_setting_of_the_environment_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(root / "project/conf/local.yaml", "embedded", "{sasl.password: 'env:PASSWORD'}")
    monkeypatch.setenv("PASSWORD", "one")
    before = depends_on(root)
    monkeypatch.setenv("PASSWORD", "two")
    assert depends_on(root) != before


def test_a_linked_reference_table_counts(root: Path) -> None:
    (root / "hosts/_delta_log").mkdir(parents=True)
    (root / "project/conf/reference/linked").symlink_to(root / "hosts")
    before = depends_on(root)
    (root / "hosts/_delta_log/0.json").write_text("{}")
    assert depends_on(root) != before


def test_the_warm_answer_is_the_cold_one(
    root: Path, interpreted: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(cached: str) -> tuple[object, ...]:
        begin()
        monkeypatch.setenv("HEADWATER_CACHE", str(root / cached))
        project = load_project(root / "project")
        return outlines.outlines(project), [describe(project, name).columns for name in TABLES], plan(project)

    found = [told("kept")]
    for edit in EDITS.values():
        edit(root)
        found.append(told("kept"))
        with monkeypatch.context() as patch:
            patch.setattr(sessions, "start", lambda conf: pytest.fail("Spark was started"))
            assert told("kept") == found[-1]
        assert told(f"empty-{len(found)}") == found[-1]
    columns = [columns for _, columns, _ in found]
    same = {name for name, (before, after) in zip(EDITS, pairwise(columns), strict=True) if before == after}
    assert same == {"conf", "rows of a reference table"}  # the other edits are such as to be seen
