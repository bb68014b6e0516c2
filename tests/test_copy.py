"""A copy of a lake is a lake of its own: it reads on where it was copied, and sends nothing anywhere."""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner

from headwater import query
from headwater.cli import app
from headwater.common.progress import Board
from headwater.connectors.kafka.broker import Topic, create_topics
from headwater.operations.savepoints import copies
from headwater.project.load import Project, load_project
from headwater.run.supervisor import Options, Run
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.lake import Lake

RAW, VISITS, COUNTS = "bronze.raw", "silver.visits", "gold.counts"
FILES = {
    "silver/visits.py": '''import json
from pathlib import Path
import headwater as hw
from headwater.connectors.sinks import Sink
@hw.table(source="bronze.raw", decode=hw.json("user STRING, n BIGINT"))
def visits(raw):
    """One row per visit."""
    return raw
class Lines(Sink):
    """Each row as a line of a file."""
    def open(self, table):
        return None
    def write(self, changes):
        with Path(__file__).with_name("sent.txt").open("a") as file:
            for _, rows in changes.batches():
                file.writelines(f"{n}\\n" for n in rows["n"].to_pylist())
    def close(self):
        pass
lines = hw.sink("silver.visits", Lines, name="lines")
''',
    "gold/counts.sql": """CREATE STREAMING TABLE gold.counts AS
        SELECT user, count(*) AS visits, sum(n) AS total FROM STREAM silver.visits GROUP BY user""",
}


class Source:
    """A project on a topic of a real broker."""

    def __init__(self, root: Path, bootstrap: str) -> None:
        self.root, self.copied = root, root / "copied"
        self.topic, self.sent = f"copy-{uuid.uuid4().hex[:8]}", 0
        self._client = {"bootstrap.servers": bootstrap}
        create_topics(self._client, [Topic(self.topic, 2)])
        kafka = f"kafka: {{bootstrap.servers: '{bootstrap}'}}\n"
        files = {
            **FILES,
            "conf/local.yaml": kafka,
            "conf/dev.yaml": f"{kafka}lake: copied\n",
            "bronze/raw.py": f"import headwater as hw\nraw = hw.topic('{self.topic}', partitions=2)\n",
        }
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

    def project(self, env: str = "local") -> Project:
        return load_project(self.root, env)

    def produce(self, count: int) -> None:
        producer = Producer(self._client)
        for n in range(self.sent, self.sent + count):
            producer.produce(self.topic, json.dumps({"user": "abc"[n % 3], "n": n}).encode(), partition=n % 2)
        assert producer.flush(60) == 0
        self.sent += count

    def run(self, env: str = "local") -> str:
        """Drain everything; what a person is told."""
        told = StringIO()
        assert Run(self.project(env), Options(once=True), Board(notices=told))() == 0, told.getvalue()
        return told.getvalue()

    def rows(self, what: str, table: str, env: str = "local") -> list[tuple[Any, ...]]:
        return query.run(f"SELECT {what} FROM {table} ORDER BY ALL", project=self.root, env=env).rows

    def told(self) -> list[int]:
        """What the sink has been sent."""
        return sorted(map(int, (self.root / "silver" / "sent.txt").read_text().splitlines()))

    def is_whole(self, env: str) -> bool:
        """Whether each record that was sent is in each table once."""
        groups = [range(at, self.sent, 3) for at in range(3)]
        totals = [(user, len(group), sum(group)) for user, group in zip("abc", groups, strict=True)]
        ns = [(n,) for n in range(self.sent)]
        return self.rows("n", VISITS, env) == ns and self.rows("*", COUNTS, env) == totals


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, broker: str) -> Source:
    source = Source(tmp_path_factory.mktemp("copy"), broker)
    source.produce(40)
    source.run()
    return source


def test_a_copy_goes_on_where_it_was_copied(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(step: str, flow: str) -> None:
        if (step, flow) == ("chosen", "copy"):
            monkeypatch.undo()
            source.produce(20)
            source.run()

    monkeypatch.setattr(failpoints, "reach", meanwhile)
    versions = copies.copy(source.project(), source.copied)
    live, copied = Lake(source.root / ".headwater/lake"), Lake(source.copied)
    assert source.is_whole("local") and source.rows("count(*)", VISITS, "dev") == [(40,)]
    assert {name: log.head(place.path) for name, place in copied.places().items()} == versions
    assert not {at.id for at in live.places().values()} & {at.id for at in copied.places().values()}

    sent = source.told()
    assert sent == list(range(60))
    assert f"is a copy of {live.root}: no alert and no sink runs until its _copy.json is" in source.run("dev")
    assert source.is_whole("dev") and source.told() == sent

    source.produce(10)
    source.run("dev")
    assert source.is_whole("dev") and source.rows("count(*)", VISITS) == [(60,)]  # each goes its own way
    (source.copied / "_copy.json").unlink()
    assert source.run("dev") == ""
    assert source.told() == sorted([*sent, *range(70)])  # what was sent is not known of a copy


def inodes(lake: Lake) -> dict[str, int]:
    """{data file of the newest versions → its inode}."""
    return {
        f"{name}/{Path(file).relative_to(place.path)}": os.stat(file).st_ino
        for name, place in lake.places().items()
        for file in DeltaTable(place.path).file_uris()
    }


def test_a_full_copy_shares_no_file(source: Source, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    live = inodes(Lake(source.root / ".headwater/lake"))
    copies.copy(source.project(), tmp_path / "linked")
    assert inodes(Lake(tmp_path / "linked")) == live
    copies.copy(source.project(), tmp_path / "full", full=True)

    def refused(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refused)
    copies.copy(source.project(), tmp_path / "elsewhere")
    for name in ("full", "elsewhere"):
        found = inodes(Lake(tmp_path / name))
        assert found.keys() == live.keys() and not set(found.values()) & set(live.values())
        marked = copies.mark(tmp_path / name)
        assert marked is not None and marked.full == (name == "full")


def test_a_backup_is_a_lake_wherever_it_lies(source: Source, tmp_path: Path) -> None:
    lake, gone = source.root / ".headwater/lake", source.root / ".headwater/gone"
    before = [source.rows("*", table) for table in (RAW, VISITS, COUNTS)]
    done = CliRunner().invoke(
        app, ["copy", str(tmp_path / "backup"), "--full", "--project", str(source.root)]
    )
    assert done.exit_code == 0 and f"3 tables are in {tmp_path / 'backup'}" in done.output, done.output
    lake.rename(gone)
    shutil.copytree(tmp_path / "backup", lake)
    try:
        assert [source.rows("*", table) for table in (RAW, VISITS, COUNTS)] == before
    finally:
        shutil.rmtree(lake)
        gone.rename(lake)


def test_a_copy_that_was_broken_off_is_not_there(
    source: Source, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def reach(step: str, flow: str) -> None:
        if step == "made":
            raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", reach)
        with pytest.raises(SystemExit):
            copies.copy(source.project(), tmp_path / "copy")
    assert names(tmp_path) == [".copy.part"]
    copies.copy(source.project(), tmp_path / "copy")
    assert names(tmp_path) == ["copy"]


def names(folder: Path) -> list[str]:
    paths: Iterable[Path] = folder.iterdir()
    return sorted(path.name for path in paths)


def test_what_can_not_be_copied_is_said(source: Source, tmp_path: Path) -> None:
    project = source.project()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with raises_code("FOLDER_TAKEN", file="used"):
        copies.copy(project, tmp_path / "used")
    with raises_code("FOLDER_TAKEN"):
        copies.copy(project, project.conf.lake / "copy")
    assert names(tmp_path) == ["used"]
    (tmp_path / "empty").mkdir()
    assert set(copies.copy(project, tmp_path / "empty")) == {RAW, VISITS, COUNTS}
