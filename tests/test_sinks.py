"""A table's changes on their way to a sink: in order, in batches, and again only after a failure."""

from __future__ import annotations

import json
import re
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable, Schema
from pyspark.sql.types import StructType
from raising import raises_code

from headwater.common.progress import Board
from headwater.common.wait import until
from headwater.connectors.sinks import Position
from headwater.errors import FlowError, ProjectError
from headwater.flows import marks
from headwater.flows.context import Context
from headwater.flows.publish import PublishFlow
from headwater.flows.run_queue import RunQueue
from headwater.operations.maintain.clean import clean
from headwater.operations.maintain.horizon import Hold, holds
from headwater.planner.aggregate import Aggregate, Output
from headwater.planner.analysis import Analysed
from headwater.planner.changes import facts
from headwater.project.load import load_project
from headwater.runtime import jvm
from headwater.storage import log, ranges, stored
from headwater.storage.target import Target
from headwater.testing import Project
from headwater.testing.rows import commit, table

TABLE = "silver.readings"
NAME = f"{TABLE}->mine"
SUM = Aggregate((Output("host", "key"), Output("n", "sum")), window="")
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/readings.py": '''import json
import time
from pathlib import Path

import headwater as hw
from headwater.errors import FlowError, SinkUnavailable
from headwater.connectors.sinks import CHANGE, Position, Sink

HERE = Path(__file__).parent


@hw.table(source="bronze.raw", decode=hw.json("host STRING, n BIGINT"))
def readings(raw):
    """One row per reading."""
    return raw


class Mine(Sink):
    """Each batch as a line of a file."""

    def open(self, table):
        self.log("open", table.name, table.keys, table.columns.names)
        own = HERE / "own"
        return Position(*json.loads(own.read_text())) if own.exists() else None

    def identity(self):
        return (HERE / "identity").read_text() if (HERE / "identity").exists() else None

    def write(self, changes):
        if (HERE / "down").exists():
            raise SinkUnavailable("mine: down", code="SINK_UNAVAILABLE")
        if (HERE / "slow").exists():
            self.log("waits")
            until = time.monotonic() + 20
            while (HERE / "slow").exists():
                assert time.monotonic() < until, "nobody else works"
                time.sleep(0.01)
        if (HERE / "refuses").exists() and changes.last.generation == 1:
            raise FlowError("mine: refused", code="SINK_REFUSES")
        rows = [(at.version, row) for at, table in changes.batches() for row in table.to_pylist()]
        rows = [[version, row[CHANGE], row["host"], row["n"]] for version, row in rows]
        self.log("write", changes.first.version, changes.last.version, rows)

    def close(self):
        self.log("close")

    def log(self, *what):
        with (HERE / "said").open("a") as file:
            print(json.dumps(what), file=file)


mine = hw.sink("silver.readings", Mine, name="mine")
''',
}


class Readings(Project):
    """A project with one table and one sink; the test writes the table, so no Spark is needed."""

    def __init__(self, root: Path, *, changing: bool = False) -> None:
        super().__init__(FILES, root)
        self.queue = RunQueue()
        self.columns: StructType = jvm.ddl("host STRING, n BIGINT")
        keys = ("host",) if changing else ()
        schema = stored.schema(self.columns)
        self.analysed = Analysed(TABLE, self.columns, schema, keys, SUM if changing else None, "f")
        properties = {"delta.enableChangeDataFeed": "true"} if changing else {}
        self.written = Target(self.lake.create(TABLE, schema, properties=properties))

    def commit(self, *rows: tuple[str, int]) -> None:
        """One version with these rows: appended, or merged by host."""
        found = table([{"host": host, "n": n} for host, n in rows], self.analysed.stored, TABLE)
        commit(self.written, self.analysed, found, {}, self.clock.now())

    def run(self, name: str = NAME) -> list[Any]:
        """Drain what is there; what the sink was called with."""
        said = self.root / "silver" / "said"
        said.write_text("")
        try:
            self.restart().end(name)
        finally:
            self.said = [json.loads(line) for line in said.read_text().splitlines()]
        return self.said

    def _new(self) -> Context:
        board = Board(notices=self._notices)
        tables = {TABLE: self.analysed}
        return Context(self.definitions, tables, None, self.lake, board, queue=self.queue)  # type: ignore[arg-type]


def test_new_rows_are_sent_version_by_version_and_once(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    case.commit(("a", 1), ("b", 2))
    case.commit()
    case.commit(("a", 3))
    assert case.run() == [
        ["open", TABLE, [], ["host", "n"]],
        ["write", 0, 3, [[1, "upsert", "a", 1], [1, "upsert", "b", 2], [3, "upsert", "a", 3]]],
        ["close"],
    ]
    assert [said[0] for said in case.run()] == ["open", "close"]
    case.commit(("c", 4))
    assert case.run()[1] == ["write", 4, 4, [[4, "upsert", "c", 4]]]


def test_of_rows_that_change_in_place_each_change_is_sent(tmp_path: Path) -> None:
    case = Readings(tmp_path, changing=True)
    case.commit(("a", 1), ("b", 2))
    case.commit(("a", 10), ("c", 3))
    opened, (_, first, last, rows), _ = case.run()
    assert opened[2] == ["host"] and (first, last) == (0, 2)
    assert sorted(rows) == [
        [1, "upsert", "a", 1],
        [1, "upsert", "b", 2],
        [2, "upsert", "a", 11],
        [2, "upsert", "c", 3],
    ]


def test_what_a_sink_did_not_take_is_sent_again(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    case.commit(("a", 1))
    (tmp_path / "silver" / "down").touch()
    with raises_code("SINK_UNAVAILABLE", match="mine: down"):
        case.run()
    assert [said[0] for said in case.said] == ["open", "close"]
    case.commit(("b", 2))
    (tmp_path / "silver" / "down").unlink()
    assert case.run()[1] == ["write", 0, 2, [[1, "upsert", "a", 1], [2, "upsert", "b", 2]]]


def test_others_work_while_a_sink_takes_its_time(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    case.queue = RunQueue(1, long=600)
    case.commit(("a", 1))
    said, slow = case.root / "silver" / "said", case.root / "silver" / "slow"
    slow.touch()

    def work() -> None:
        assert until(lambda: said.exists() and "waits" in said.read_text(), within=60)
        with case.queue.turn():
            slow.unlink()

    other = threading.Thread(target=work, daemon=True)
    other.start()
    assert [what for what, *_ in case.run()] == ["open", "waits", "write", "close"]
    other.join()


def test_a_sink_that_keeps_its_position_is_believed(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    for n in range(4):
        case.commit(("a", n))
    (tmp_path / "silver" / "own").write_text("[1, 2]")
    assert case.run()[1] == ["write", 3, 4, [[3, "upsert", "a", 2], [4, "upsert", "a", 3]]]
    (tmp_path / "silver" / "own").write_text("[1, 1]")  # it was restored from a backup
    assert case.run()[1][1:3] == [2, 4]


@pytest.mark.parametrize("changing", [False, True])
def test_of_a_table_that_was_built_anew_what_differs_is_sent(tmp_path: Path, changing: bool) -> None:
    case = Readings(tmp_path, changing=changing)
    case.commit(("a", 1), ("b", 2))
    case.run()
    case.commit(("c", 3))  # which the sink does not have yet
    live = case.lake.place(TABLE)
    new = replace(live, generation=2, path=case.lake.at(TABLE, 2))
    DeltaTable.create(
        new.path,
        schema=Schema.from_arrow(stored.schema(case.columns)),
        configuration={"delta.enableChangeDataFeed": "true"} if changing else {},
    )
    case.written = Target(new)
    case.commit(("a", 1), ("b", 20), ("d", 4))
    case.lake.swap({TABLE: new})
    _, (_, first, last, rows), _ = case.run()
    assert (first, last) == (1, 1)
    assert sorted(rows) == [[1, "upsert", "b", 20], [1, "upsert", "d", 4]]
    case.commit(("e", 5))
    assert case.run()[1][3] == [[2, "upsert", "e", 5]]


def test_what_a_new_generation_has_no_more_goes_from_the_sink(tmp_path: Path) -> None:
    case = Readings(tmp_path, changing=True)
    case.commit(("a", 1), ("b", 2))
    case.run()
    new = replace(case.lake.place(TABLE), generation=2, path=case.lake.at(TABLE, 2))
    DeltaTable.create(new.path, schema=Schema.from_arrow(stored.schema(case.columns)))
    case.written = Target(new)
    case.commit(("b", 2))
    case.lake.swap({TABLE: new})
    aside = case.lake.at(TABLE, 1).rename(tmp_path / "aside")
    with raises_code("SINK_POSITION_LOST", match=r"generation 1, which was sent last, was"):
        case.run()
    aside.rename(case.lake.at(TABLE, 1))
    assert case.run()[1][3] == [[1, "delete", "a", 1]]
    same = replace(new, generation=3, path=case.lake.at(TABLE, 3))
    shutil.copytree(new.path, same.path)
    case.lake.swap({TABLE: same})
    assert case.run()[1][3] == []  # and it knows that it is there
    shutil.rmtree(new.path)
    assert [said[0] for said in case.run()] == ["open", "close"]


def test_the_sink_of_the_docs_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "sinks.md").read_text()
    code = page.split("# gold/lines.py\n")[1].split("```")[0].replace("gold.cpu_usage_5m", TABLE)
    lines = tmp_path / "usage.txt"
    case = Readings(tmp_path)
    (tmp_path / "gold").mkdir()
    (tmp_path / "gold" / "lines.py").write_text(code.replace("/mnt/share/usage.txt", str(lines)))
    case.commit(("a", 1))
    case.run(f"{TABLE}->lines")
    case.commit(("b", 2))
    case.run(f"{TABLE}->lines")
    assert lines.read_text() == "1 upsert {'host': 'a', 'n': 1}\n2 upsert {'host': 'b', 'n': 2}\n"


def test_a_sink_is_told_of_many_versions_that_bring_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "UNTOLD", 3)
    case = Readings(tmp_path)
    case.commit(("a", 1))
    assert case.run()[1][:3] == ["write", 0, 1]
    case.commit()
    case.commit()
    assert [said[0] for said in case.run()] == ["open", "close"]
    case.commit()
    assert case.run()[1] == ["write", 2, 4, []]
    assert marks.sent(case.lake, NAME).at == Position(1, 4)


def test_a_sink_that_was_sent_nothing_is_not_broken_off(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    case.commit()
    assert [said[0] for said in case.run()] == ["open", "close"]
    assert marks.sent(case.lake, NAME).at == Position(1, -1) and not marks.begun(case.lake, NAME).is_set()
    before = case.written.place
    new = replace(before, generation=2, path=case.lake.at(TABLE, 2))
    before.path.rename(new.path)  # and the one before is removed
    case.written = Target(new)
    case.commit(("c", 3))
    case.lake.swap({TABLE: new})
    assert [said[3] for said in case.run() if said[0] == "write"] == [[[2, "upsert", "c", 3]]]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_sink_that_was_off_for_longer_than_versions_are_kept_says_so(tmp_path: Path, swapped: bool) -> None:
    case = Readings(tmp_path)
    case.commit(("a", 1))
    case.run()
    for n in range(4):
        case.commit(("b", n))
    DeltaTable(case.written.place.path).create_checkpoint()
    assert clean(case.written.place.path, upto=5, before=datetime.now(UTC)).commits == 5
    if swapped:
        new = replace(case.written.place, generation=2, path=case.lake.at(TABLE, 2))
        shutil.copytree(case.written.place.path, new.path)
        case.lake.swap({TABLE: new})
    with raises_code("SINK_POSITION_LOST", match=r"version 1.* sent last, is gone.*empty the target") as lost:
        case.run()
    shutil.rmtree(str(lost.value).split("where it is (")[1].split(")")[0])
    (wrote,) = [said for said in case.run() if said[0] == "write"]
    assert len(wrote[3]) == 5


def test_a_batch_holds_a_bounded_number_of_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.flows.publish.MOST", 5)
    case = Readings(tmp_path)
    for size in (2, 3, 1, 9, 1, 1):
        case.commit(*[("a", n) for n in range(size)])
    assert [said[1:3] for said in case.run() if said[0] == "write"] == [[0, 2], [3, 3], [4, 4], [5, 6]]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            "hw.sink('silver.readings', dict, name='mine')",
            "make gave a dict; give a headwater.connectors.sinks.Sink",
        ),
        ("hw.sink('silver.reading', Mine, name='mine')", "did you mean silver.readings?"),
        (
            "hw.postgres_sink('silver.readings', connection='dwh')",
            "'dwh', which is no connection; add it under 'postgres' in",
        ),
        (
            "hw.opensearch_sink('silver.readings', connection='dwh', index='readings')",
            "'dwh', which is no connection; add it under 'opensearch' in",
        ),
    ],
)
def test_a_sink_that_is_none_is_refused(tmp_path: Path, made: str, says: str) -> None:
    case = Readings(tmp_path)
    case.commit(("a", 1))
    file = tmp_path / "silver" / "readings.py"
    file.write_text(
        file.read_text()
        .replace("hw.sink('silver.readings', Mine, name='mine')", made)
        .replace('hw.sink("silver.readings", Mine, name="mine")', made)
    )
    with pytest.raises((FlowError, ProjectError), match=re.escape(says)):
        case.run()


STORES = {"postgres": "host: localhost", "opensearch": "hosts: ['https://localhost:9200'], user: me"}


@pytest.mark.parametrize("store", STORES)
def test_a_password_in_the_file_is_refused_and_a_reference_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    case = Readings(tmp_path)
    conf = tmp_path / "conf" / "local.yaml"
    conf.write_text(f"{store}: {{dwh: {{{STORES[store]}, password: secret}}}}\n")
    with raises_code("SECRET_IN_CONF", match=rf"{store}\.dwh\.password stands in the file itself") as e:
        load_project(case.root)
    assert "secret" not in str(e.value)
    conf.write_text(f"{store}: {{dwh: {{{STORES[store]}, password: 'env:DWH'}}}}\n")
    monkeypatch.setenv("DWH", "secret")
    assert dict(getattr(load_project(case.root).conf, store)["dwh"])["password"] == "secret"


@pytest.mark.parametrize("store", STORES)
def test_the_sinks_of_a_connection_that_is_off_do_not_run(tmp_path: Path, store: str) -> None:
    case = Readings(tmp_path)
    (tmp_path / "gold").mkdir()
    (tmp_path / "gold" / "t.sql").write_text(WINDOWS.format(f"'headwater.{store}' = 'dwh'"))
    conf = tmp_path / "conf" / "local.yaml"
    conf.write_text(f"{store}: {{dwh: off}}\n")
    assert [sink.target for sink in load_project(case.root).sinks.values()] == ["mine"]
    conf.write_text(f"{store}: {{dwh: on}}\n")
    with raises_code("CONF_INVALID", match=rf"local\.yaml: key '{store}\.dwh"):
        load_project(case.root)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("{}", "key 'opensearch.dwh.hosts': Field required"),
        ("{hosts: []}", "key 'opensearch.dwh.hosts'"),
        ("{hosts: ['localhost:9200']}", "localhost:9200 is no address; write https://host:9200"),
        ("{hosts: ['https://me:secret@localhost']}", "leave user and password out of the address"),
        (
            "{hosts: ['https://localhost'], pasword: 'env:DWH'}",
            "unknown key 'opensearch.dwh.pasword'; known: ca_",
        ),
    ],
)
def test_a_connection_to_opensearch_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, says: str
) -> None:
    case = Readings(tmp_path)
    monkeypatch.setenv("DWH", "secret")
    (tmp_path / "conf" / "local.yaml").write_text(f"opensearch: {{dwh: {options}}}\n")
    with raises_code("CONF_INVALID", match=re.escape(says)) as e:
        load_project(case.root)
    assert "secret" not in str(e.value)


WINDOWS = """CREATE STREAMING TABLE gold.t TBLPROPERTIES ({}) AS
SELECT window.start AS since, host, sum(n) AS n FROM STREAM silver.readings
WATERMARK at DELAY OF INTERVAL 1 SECOND GROUP BY window(at, '1 minute'), host"""
PUBLISHED = "'headwater.publish' = 'windows', 'headwater.publish.on' = 'final'"


@pytest.mark.parametrize(("emit", "read"), [("update", "gold.t_final"), ("final", "gold.t")])
def test_a_sink_of_final_windows_reads_the_table_that_keeps_them(
    tmp_path: Path, emit: str, read: str
) -> None:
    case = Readings(tmp_path)
    (tmp_path / "conf" / "local.yaml").write_text(f"opensearch: {{dwh: {{{STORES['opensearch']}}}}}\n")
    (tmp_path / "gold").mkdir()
    searched = "'headwater.opensearch' = 'dwh', 'headwater.opensearch.on' = 'final'"
    statement = WINDOWS.format(f"{PUBLISHED}, {searched}, 'headwater.emit' = '{emit}'")
    (tmp_path / "gold" / "t.sql").write_text(statement)
    project = load_project(case.root)
    found = {sink.target: sink.table for sink in project.sinks.values()}
    assert found == {"mine": TABLE, "kafka:windows": read, "opensearch:dwh.gold.t": read}
    table = project.tables[read]
    assert (table.emit == "final" and not table.sinks) or emit == "final"
    assert sorted(name for name in project.tables if name.startswith("gold.")) == sorted({"gold.t", read})


def test_final_windows_that_are_read_are_kept(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    (tmp_path / "gold").mkdir()
    (tmp_path / "gold" / "t.sql").write_text(WINDOWS.format("'headwater.allowed_lateness' = '1 minute'"))
    assert "gold.t_final" not in load_project(case.root).tables
    view = "CREATE MATERIALIZED VIEW gold.v AS SELECT count(*) AS n FROM gold.t_final"
    (tmp_path / "gold" / "v.sql").write_text(view)
    project = load_project(case.root)
    assert list(project.tables)[-2:] == ["gold.t_final", "gold.v"]
    assert project.tables["gold.t_final"].allowed_lateness is None
    assert project.tables["gold.t"].emit == "update"


@pytest.mark.parametrize("store", STORES)
def test_a_table_in_sql_says_its_connection_by_a_property(tmp_path: Path, store: str) -> None:
    case = Readings(tmp_path)
    (tmp_path / "conf" / "local.yaml").write_text(f"{store}: {{dwh: {{{STORES[store]}}}}}\n")
    (tmp_path / "gold").mkdir()
    for name, value in (("a", "dwh"), ("b", "dwh.raw.b")):
        (tmp_path / "gold" / f"{name}.sql").write_text(
            f"CREATE STREAMING TABLE gold.{name} TBLPROPERTIES ('headwater.{store}' = '{value}') AS "
            "SELECT host, sum(n) AS n FROM STREAM silver.readings GROUP BY host"
        )
    sinks = load_project(case.root).sinks
    assert [sink.target for sink in sinks.values()] == ["mine", f"{store}:dwh.gold.a", f"{store}:dwh.raw.b"]


def test_a_batch_that_broke_off_comes_to_its_end_before_another_generation(tmp_path: Path) -> None:
    case = Readings(tmp_path, changing=True)
    silver = tmp_path / "silver"
    case.commit(("a", 1))
    case.run()
    before = case.written.place
    new = replace(before, generation=2, path=case.lake.at(TABLE, 2))
    shutil.copytree(before.path, new.path)
    case.commit(("b", 2))
    (silver / "down").touch()  # and a part of it may be there
    with raises_code("SINK_UNAVAILABLE"):
        case.run()
    (silver / "down").unlink()
    case.lake.swap({TABLE: new})
    said = [said[3] for said in case.run() if said[0] == "write"]
    assert said == [[[2, "upsert", "b", 2]], [[1, "delete", "b", 2]]]
    assert not list((tmp_path / ".headwater/lake/_flows").rglob("begun.json"))


@pytest.mark.parametrize("how", ["comes back", "refuses", "atomic", "removed"])
def test_what_was_begun_of_a_generation_ends_first_if_it_can_be_there(tmp_path: Path, how: str) -> None:
    case = Readings(tmp_path)
    silver = tmp_path / "silver"
    if how == "atomic":
        text = FILES["silver/readings.py"].replace("    def open", "    atomic = True\n\n    def open")
        (silver / "readings.py").write_text(text)
    case.commit(("a", 1), ("b", 2))
    (silver / "down").touch()
    with raises_code("SINK_UNAVAILABLE"):
        case.run()
    (silver / "down").unlink()
    before = case.written.place
    new = replace(before, generation=2, path=case.lake.at(TABLE, 2))
    shutil.copytree(before.path, new.path)
    case.written = Target(new)
    case.commit(("c", 3))
    case.lake.swap({TABLE: new})
    if how == "refuses":
        (silver / "refuses").touch()
        with raises_code(
            "SINK_REFUSES", match=r"^mine: refused; it is of generation 1, which was begun"
        ) as e:
            case.run()
        shutil.rmtree(str(e.value).split("remove ")[1].split(",")[0])
    if how == "removed":
        shutil.rmtree(before.path)
        with raises_code(
            "SINK_POSITION_LOST", match=r"generation 1, a part of which was sent, was removed, so"
        ):
            case.run()
        return
    said = [said[3] for said in case.run() if said[0] == "write"]
    old, last = [[1, "upsert", "a", 1], [1, "upsert", "b", 2]], [2, "upsert", "c", 3]
    assert said == ([old, [last]] if how == "comes back" else [[*old, last]])
    assert not [said for said in case.run() if said[0] == "write"]


@pytest.mark.parametrize("changing", [False, True])
def test_a_sink_that_comes_when_the_log_has_lost_its_beginning_gets_all_rows(
    tmp_path: Path, changing: bool
) -> None:
    case = Readings(tmp_path / "project", changing=changing)
    for n in range(5):
        case.commit((f"h{n % 3}", n))
    DeltaTable(case.written.place.path).create_checkpoint()
    case.commit(("h9", 9))
    assert clean(case.written.place.path, upto=6, before=datetime.now(UTC)).commits == 5
    want = {"h0": 3, "h1": 5, "h2": 2, "h9": 9}
    rows = want.items() if changing else [("h0", 0), ("h1", 1), ("h2", 2), ("h0", 3), ("h1", 4), ("h9", 9)]
    (wrote,) = [said for said in case.run() if said[0] == "write"]
    assert wrote[1:3] == [6, 6]
    assert sorted(wrote[3]) == sorted([6, "upsert", host, n] for host, n in rows)
    case.commit(("h0", 1))
    assert [said for said in case.run() if said[0] == "write"][-1][1:3] == [7, 7]


def test_what_a_sink_begins_with_is_held_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Readings(tmp_path / "project")
    case.commit(("h1", 1))
    held, real = list[list[Hold]](), log.commits

    def read(*args: Any, **options: Any) -> Any:
        held.append([hold for hold in holds(case.definitions, case.lake) if hold.who == f"the sink {NAME}"])
        return real(*args, **options)

    monkeypatch.setattr("headwater.flows.publish.log", SimpleNamespace(**{**vars(log), "commits": read}))
    assert [said[1:3] for said in case.run() if said[0] == "write"] == [[0, 1]]
    assert held[0] == [Hold(TABLE, 1, -1, f"the sink {NAME}")]
    assert not list((tmp_path / "project/.headwater/lake/_flows").rglob("begun.json"))


def test_a_sink_that_stood_still_before_it_held_what_it_sends_sends_what_there_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Readings(tmp_path / "project")
    for n in range(5):
        case.commit((f"h{n}", n))
    DeltaTable(case.written.place.path).create_checkpoint()
    case.commit(("h9", 9))
    assert clean(case.written.place.path, upto=6, before=datetime.now(UTC)).commits == 5
    heads = [3]  # as it was before the log was cleaned

    def head(path: Path) -> int:
        return heads.pop() if heads else log.head(path)

    monkeypatch.setattr("headwater.flows.publish.log", SimpleNamespace(**{**vars(log), "head": head}))
    (wrote,) = [said for said in case.run() if said[0] == "write"]
    assert wrote[1:3] == [6, 6] and len(wrote[3]) == 6 and not heads


@pytest.mark.parametrize("more", [0, 4], ids=["that has come less far", "that has come further"])
def test_another_table_in_the_place_of_the_one_that_was_sent_is_not_taken_for_it(
    tmp_path: Path, more: int
) -> None:
    case = Readings(tmp_path)
    for n in range(3):
        case.commit(("a", n))
    case.run()
    made_anew(case, 1 + more)
    with raises_code("SINK_POSITION_LOST", match="was made anew"):
        case.run()
    assert not [call for call in case.said if call[0] == "write"]


def test_a_sink_that_keeps_its_position_tells_another_table_by_when_it_was_committed(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    for n in range(3):
        case.commit(("a", n))
    path = case.written.place.path
    (tmp_path / "silver" / "own").write_text(json.dumps([1, 2, log.read(path, 2).committed]))
    assert case.run()[1][1:3] == [3, 3]
    made_anew(case, 5)
    with raises_code("SINK_POSITION_LOST", match="was made anew"):
        case.run()


def test_a_table_is_told_from_another_also_where_one_was_built_since(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    case.commit(("a", 1))
    case.run()
    made_anew(case, 2)
    same = replace(case.written.place, generation=2, path=case.lake.at(TABLE, 2))
    shutil.copytree(case.written.place.path, same.path)
    case.lake.swap({TABLE: same})
    with raises_code("SINK_POSITION_LOST", match="was made anew"):
        case.run()


def test_a_table_that_is_not_there_when_its_sink_opens_is_another_one(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    case.commit(("a", 1))
    case.run()
    shutil.rmtree(case.written.place.path.parent)
    with raises_code("SINK_POSITION_LOST", match="was made anew"):
        case.run()


def test_a_generation_that_other_definitions_made_is_not_sent_by_who_has_the_former(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    case.commit(("a", 1))
    flow = PublishFlow(case.context, case.definitions.sinks[NAME])
    assert flow._step() and not flow._step()
    new = replace(case.written.place, generation=2, path=case.lake.at(TABLE, 2))
    shutil.copytree(case.written.place.path, new.path)
    case.lake.swap({TABLE: new})
    facts.write(case.lake.flow_folder(TABLE), {}, None, "of another project")
    with raises_code("DEFINITIONS_OUTDATED"):
        flow._step()
    case.context.opened[TABLE] = 1  # by the table's flow, which has stopped since
    with raises_code("DEFINITIONS_OUTDATED"):
        PublishFlow(case.context, case.definitions.sinks[NAME])._step()
    assert case.run()[-1] == ["close"]  # of a process that was started since


@pytest.mark.parametrize("own", [[1, 1, 5], [1, 1]], ids=["of a version before that", "of none"])
def test_the_lake_knows_when_a_version_was_committed_where_the_sink_does_not(
    tmp_path: Path, own: list[int]
) -> None:
    case = Readings(tmp_path)
    case.commit(("a", 1))
    case.run()
    (tmp_path / "silver" / "own").write_text(json.dumps(own))
    case.commit(("b", 2))
    assert case.run()[1][3] == [[2, "upsert", "b", 2]]


def test_a_sink_that_has_a_later_generation_than_the_live_one_says_so(tmp_path: Path) -> None:
    case = Readings(tmp_path)
    case.commit(("a", 1))
    (tmp_path / "silver" / "own").write_text("[2, 1]")
    shutil.copytree(case.written.place.path, case.lake.at(TABLE, 2))
    with raises_code("SINK_POSITION_LOST", match="generation 2 was sent, and an earlier one is live"):
        case.run()


def made_anew(case: Readings, versions: int) -> None:
    """Another table in the place of the one that was sent."""
    shutil.rmtree(case.written.place.path.parent)
    case.written = Target(case.lake.create(TABLE, case.analysed.stored, properties={}))
    for n in range(versions):
        case.commit(("b", n))


def test_another_target_of_the_name_is_sent_the_whole_table(tmp_path: Path) -> None:
    case, identity = Readings(tmp_path), tmp_path / "silver" / "identity"
    case.commit(("a", 1))
    case.run()  # it does not say which it is
    identity.write_text("first")
    assert [call[0] for call in case.run()] == ["open", "close"]  # from here on it is known
    identity.unlink()
    case.commit(("b", 2))
    assert case.run()[1][3] == [[2, "upsert", "b", 2]]
    identity.write_text("second")
    everything = [[1, "upsert", "a", 1], [2, "upsert", "b", 2]]
    assert case.run()[1][3] == everything
    case.commit(("c", 3))
    (tmp_path / "silver" / "refuses").touch()
    identity.write_text("third")
    with raises_code("SINK_REFUSES"):
        case.run()
    (tmp_path / "silver" / "refuses").unlink()
    assert case.run()[1][3] == [*everything, [3, "upsert", "c", 3]]
    assert [call[0] for call in case.run()] == ["open", "close"]


def test_rows_that_were_sent_by_other_keys_are_said(tmp_path: Path) -> None:
    case = Readings(tmp_path, changing=True)
    case.commit(("a", 1))
    case.run()
    position = case.lake.flow_folder(NAME) / "position.json"
    position.write_text(json.dumps({"generation": 1, "version": 1}))  # as it was once kept
    assert [call[0] for call in case.run()] == ["open", "close"]  # from here on they are known
    case.analysed = replace(case.analysed, keys=("host", "n"))
    case.commit(("b", 2))
    with raises_code(
        "SINK_TARGET_DIFFERS", match="sent by the keys host, and the table has the keys host, n"
    ) as e:
        case.run()
    assert str(case.lake.flow_folder(NAME)) in (e.value.hint or "")
    shutil.rmtree(case.lake.flow_folder(NAME))
    assert len(case.run()[1][3]) == 2
