"""Tables that AUTO CDC keeps: what follows from changes, in whatever order they come and however often."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from test_final import seeded

from headwater.errors.codes import Code
from headwater.flows import computed
from headwater.operations.maintain.compact import compact
from headwater.operations.rebuild import compare
from headwater.operations.rebuild.reconcile import reconcile
from headwater.operations.replay import resolve
from headwater.quality import quarantine
from headwater.quality.quarantine import Quarantine
from headwater.query import inspect
from headwater.storage import layers, log, stored
from headwater.storage.target import Target
from headwater.testing import Project, Record

CHANGES = """CREATE STREAMING TABLE changes TBLPROPERTIES (
  'headwater.decode' = 'json', 'headwater.schema' = 'id INT, seq INT, op STRING, a INT, b STRING, of INT'
) AS SELECT id, seq, op, a, b, of, _source, ingested_at FROM STREAM bronze.changes"""
FILES = {
    "bronze/raw.py": 'import headwater as hw\n\nchanges = hw.topic("changes")\n',
    "silver/changes.sql": CHANGES,
}
FROM = "FROM STREAM silver.changes KEYS (id) APPLY AS DELETE WHEN op = 'D' SEQUENCE BY seq"
TABLES = {
    "latest": f"{FROM} COLUMNS * EXCEPT (op, seq, of)",
    "filled": f"{FROM} COLUMNS id, a, b IGNORE NULL UPDATES",
    "filled_a": f"{FROM} COLUMNS (id, a, b) IGNORE NULL UPDATES ON a STORED AS SCD TYPE 1",
    "history": f"{FROM} COLUMNS * EXCEPT (op, seq, of) STORED AS SCD TYPE 2",
    "filled_history": f"{FROM} COLUMNS (id, a, b) IGNORE NULL UPDATES ON * EXCEPT (b) STORED AS SCD TYPE 2",
    "tracked": f"{FROM} COLUMNS (id, a, b) STORED AS SCD TYPE 2 TRACK HISTORY ON a",
    "both": f"{FROM} COLUMNS id, a, b IGNORE NULL UPDATES STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (a)",
}
IGNORED = {"filled": "ab", "filled_a": "a", "filled_history": "a", "both": "ab"}
TRACKED = {"history": "ab", "filled_history": "ab", "tracked": "a", "both": "b"}


class Change(NamedTuple):
    seq: int
    deleted: bool
    a: int | None
    b: str | None

    def order(self) -> tuple[Any, ...]:
        return self.seq, self.deleted, *((x is not None, x or 0) for x in (self.a, self.b))

    def record(self, key: int) -> dict[str, Any]:
        return {"id": key, "seq": self.seq, "op": "D" if self.deleted else "U", "a": self.a, "b": self.b}


def folded(changes: Iterable[Change], ignored: str) -> list[tuple[int, tuple[Any, Any] | None]]:
    """What a row is from each sequence on."""
    found: dict[int, tuple[Any, Any] | None] = {}
    row: tuple[Any, Any] | None = None
    for change in sorted({*changes}, key=Change.order):
        new = [change.a, change.b]
        for at, name in enumerate("ab"):
            if new[at] is None and row is not None and name in ignored:
                new[at] = row[at]
        row = None if change.deleted else (new[0], new[1])
        found[change.seq] = row
    return list(found.items())


def latest(changes: Iterable[Change], ignored: str) -> list[tuple[Any, ...]]:
    *_, (_, row) = [(0, None), *folded(changes, ignored)]
    return [row] if row else []


def history(changes: Iterable[Change], ignored: str, tracked: str) -> list[tuple[Any, ...]]:
    found: list[list[Any]] = []
    open_, at = False, ["ab".index(name) for name in tracked]
    for seq, row in folded(changes, ignored):
        if open_ and row is not None and all(found[-1][0][each] == row[each] for each in at):
            found[-1][0] = row
            continue
        if open_:
            found[-1][2] = seq
        open_ = row is not None
        if open_:
            found.append([row, seq, None])
    return [(*row, start, end) for row, start, end in found]


def definitions(tables: Iterable[str] = TABLES) -> dict[str, str]:
    return {
        f"gold/{name}.sql": f"CREATE STREAMING TABLE {name} FLOW AUTO CDC {TABLES[name]}" for name in tables
    }


def check(project: Project, cases: dict[int, Sequence[Change]], tables: Iterable[str] = TABLES) -> None:
    for name in tables:
        if name in TRACKED:
            columns = "id, a, b, __START_AT, __END_AT"
            wanted = {
                (key, *row)
                for key, changes in cases.items()
                for row in history(changes, IGNORED.get(name, ""), TRACKED[name])
            }
        else:
            columns = "id, a, b"
            wanted = {
                (key, *row)
                for key, changes in cases.items()
                for row in latest(changes, IGNORED.get(name, ""))
            }
        rows = project.rows(f"gold.{name}", columns)
        assert {*rows} == wanted and len(rows) == len(wanted), (
            name,
            [row for row in rows if tuple(row) not in wanted][:3],
            [row for row in wanted if row not in {*rows}][:3],
        )


def drawn(draw: random.Random, many: int) -> list[Change]:
    return [
        Change(
            draw.randint(1, 3),
            draw.random() < 0.25,
            draw.choice([None, 1, 2]),
            draw.choice([None, "x", "y"]),
        )
        for _ in range(many)
    ]


@pytest.mark.parametrize("way", ["touched", pytest.param("whole", marks=pytest.mark.torture)])
def test_every_order_of_changes_gives_the_same(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Each order of a small history is a key's; so each batch has one change of every order."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    monkeypatch.setattr(computed, "WHOLE", -1 if way == "touched" else 10_000_000)
    project = Project({**FILES, **definitions()}, tmp_path, spark=interpreted)
    histories = [drawn(draw, 4) for _ in range(30)]
    orders = [order for changes in histories for order in itertools.permutations(changes)]
    for at in range(4):
        project.send("changes", [order[at].record(key) for key, order in enumerate(orders)])
        project.step()
        check(project, {key: order[: at + 1] for key, order in enumerate(orders)})
    project.send("changes", [change.record(key) for key, order in enumerate(orders) for change in order])
    project.step()
    check(project, dict(enumerate(orders)))
    assert all(project.batches(f"gold.{name}")[-1].rows_out == 0 for name in TABLES)


def test_what_holds_stands_apart_from_what_is_over(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = seeded(random.randrange(2**32))
    monkeypatch.setattr(computed, "WHOLE", -1)
    monkeypatch.setattr(layers, "CLUSTER", 8)
    monkeypatch.setattr(sys.modules[compact.__module__], "FEWEST", 3)
    tables = ["history", "both", "latest"]
    project = Project({**FILES, **definitions(tables)}, tmp_path, spark=interpreted)
    cases: dict[int, list[Change]] = {key: [] for key in range(60)}
    for turn in range(10):
        changed = draw.sample(range(60), 12)
        for key in changed:
            late = turn - draw.choice([0, 0, 0, 1, 4, 9])
            change = Change(late, draw.random() < 0.2, draw.choice([None, 1, 2]), draw.choice("xyz"))
            cases[key].append(change)
        project.send("changes", [cases[key][-1].record(key) for key in changed])
        project.step()
        if turn % 3 == 2:
            place = project.lake.place("gold.history")
            compact(Target.shared(place), ["id", "__START_AT"], settled=0)
        check(project, cases, tables)
    place = project.lake.place("gold.history")
    over = Target.shared(place).without_nulls("__END_AT")
    read, wanted = project.batches("gold.history")[-1].rows_in, sum(map(len, cases.values()))
    assert over and read < wanted / 2
    assert project.batches("gold.latest")[-1].rows_in < wanted / 2
    rows = pa.concat_tables(stored.whole(file) for file in over)
    assert len(rows) > sum(end is not None for *_, end in project.rows("gold.history", "*")) / 2


def one(project: Project, *records: dict[str, Any]) -> None:
    project.send("changes", records)
    project.step()


def test_what_a_truncation_leaves(interpreted: SparkSession, tmp_path: Path) -> None:
    """Whatever comes first: a truncation deletes what has a sequence up to its own."""
    said = f"{FROM} APPLY AS TRUNCATE WHEN op = 'T' COLUMNS id, a".replace("FROM STREAM", "FROM STREAM", 1)
    files = {**FILES, "gold/t.sql": f"CREATE STREAMING TABLE t FLOW AUTO CDC {said}"}
    project = Project(files, tmp_path, spark=interpreted)
    one(project, {"id": 1, "seq": 1, "op": "U", "a": 1}, {"id": 2, "seq": 5, "op": "U", "a": 2})
    one(project, {"id": None, "seq": 3, "op": "T"})
    assert project.rows("gold.t") == [(2, 2)]
    one(project, {"id": 3, "seq": 2, "op": "U", "a": 3}, {"id": 4, "seq": 3, "op": "U", "a": 4})
    one(project, {"id": 1, "seq": 4, "op": "U", "a": 5})
    assert sorted(project.rows("gold.t")) == [(1, 5), (2, 2)]


def test_truncations_that_are_said_later_and_expectations_leave_changes_as_they_are(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    rule = "(CONSTRAINT told EXPECT (a IS NOT NULL) ON VIOLATION DROP ROW)"
    said = "CREATE STREAMING TABLE t {} FLOW AUTO CDC {}{} COLUMNS id, a"
    files = {**FILES, "gold/t.sql": said.format(rule, FROM, "")}
    project = Project(files, tmp_path, spark=interpreted)
    one(project, {"id": 1, "seq": 1, "op": "U", "a": 1}, {"id": 2, "seq": 5, "op": "U", "a": 2})
    project.write({"gold/t.sql": said.format(rule, FROM, " APPLY AS TRUNCATE WHEN op = 'T'")})
    project.step()
    assert sorted(project.rows("gold.t")) == [(1, 1), (2, 2)]
    one(project, {"id": None, "seq": 3, "op": "T", "a": None})
    assert project.rows("gold.t") == [(2, 2)]


DECODES = """CREATE STREAMING TABLE t (CONSTRAINT small EXPECT (a < 10) ON VIOLATION DROP ROW) TBLPROPERTIES (
  'headwater.decode' = 'json', 'headwater.schema' = 'id INT, seq INT, op STRING, a INT'
) FLOW AUTO CDC FROM STREAM bronze.changes KEYS (id) APPLY AS DELETE WHEN op = 'D' SEQUENCE BY seq
COLUMNS * EXCEPT (op, _rescued)"""


def test_a_change_that_is_in_no_order_is_held_and_replayed(interpreted: SparkSession, tmp_path: Path) -> None:
    """A table may decode its changes itself; its expectations are of these, but of deletes nothing is."""
    project = Project(
        {"bronze/raw.py": FILES["bronze/raw.py"], "silver/t.sql": DECODES}, tmp_path, spark=interpreted
    )
    one(
        project,
        {"id": 1, "seq": 1, "op": "U", "a": 1},
        {"id": 2, "op": "U", "a": 2},
        {"seq": 1, "op": "U", "a": 3},
    )
    one(project, {"id": 3, "seq": 1, "op": "U", "a": 30}, {"id": 1, "seq": 2, "op": "D", "a": 99})
    assert project.rows("silver.t", "id, seq, a") == []
    held = project.rows("quarantine.silver_t_changes", "rules")
    assert held == [(["sequenced"],), (["sequenced"],)]


def test_without_raw_records_it_is_kept_among_the_changes(interpreted: SparkSession, tmp_path: Path) -> None:
    files = {**FILES, "gold/t.sql": f"CREATE STREAMING TABLE t FLOW AUTO CDC {TABLES['latest']}"}
    project = Project(files, tmp_path, spark=interpreted)
    one(project, {"id": 1, "op": "U", "a": 1}, {"id": 2, "seq": 1, "op": "U", "a": 2})
    assert project.rows("gold.t", "id, a") == [(2, 2)]
    assert len(project.rows("gold.t_changes")) == 2


HW = """import headwater as hw

t = hw.auto_cdc(
    source="silver.changes", keys=["id"], sequence_by="seq", apply_as_deletes="op = 'D'",
    except_column_list=["op", "seq", "of"], scd=2,
)
"""
DP = """from pyspark import pipelines as dp
from pyspark.sql.functions import col, expr

dp.create_streaming_table("t")
dp.create_auto_cdc_flow(
    target="t", source="silver.changes", keys=[col("id")], sequence_by=col("seq"),
    apply_as_deletes=expr("op = 'D'"),
    except_column_list=["op", "seq", "of"], stored_as_scd_type="2",
)
"""
SHORT = f"CREATE STREAMING TABLE t FLOW AUTO CDC {TABLES['history']}"
FLOW = f"""CREATE OR REFRESH STREAMING TABLE t COMMENT 'All that was';
CREATE FLOW f AS AUTO CDC INTO t {TABLES["history"]};"""
OLDER = f"CREATE STREAMING TABLE t; APPLY CHANGES INTO gold.t {TABLES['history']};"


@pytest.mark.parametrize(
    ("file", "text"),
    [("t.py", HW), ("t.py", DP), ("t.sql", SHORT), ("t.sql", FLOW), ("t.sql", OLDER)],
    ids=["hw", "dp", "short", "flow", "older"],
)
def test_it_is_said_in_sql_and_in_python(
    interpreted: SparkSession, tmp_path: Path, file: str, text: str
) -> None:
    project = Project({**FILES, f"gold/{file}": text}, tmp_path, spark=interpreted)
    one(project, {"id": 1, "seq": 1, "op": "U", "a": 1}, {"id": 1, "seq": 3, "op": "D"})
    one(project, {"id": 1, "seq": 2, "op": "U", "b": "x"})
    rows = project.rows("gold.t", "id, a, b, __START_AT, __END_AT")
    assert sorted(rows, key=str) == [(1, 1, None, 1, 2), (1, None, "x", 2, 3)]


def test_several_flows_feed_one_table(interpreted: SparkSession, tmp_path: Path) -> None:
    flows = "CREATE STREAMING TABLE t;\n" + "".join(
        f"CREATE FLOW {name} AS AUTO CDC INTO t FROM STREAM silver.changes KEYS (id) "
        f"APPLY AS DELETE WHEN op = '{op}' SEQUENCE BY seq + {later} COLUMNS id, a;\n"
        for name, op, later in (("first", "D", 0), ("second", "X", 10))
    )
    project = Project({**FILES, "gold/t.sql": flows}, tmp_path, spark=interpreted)
    one(project, {"id": 1, "seq": 1, "op": "X", "a": 1}, {"id": 2, "seq": 1, "op": "D", "a": 2})
    assert project.rows("gold.t") == [(2, 2)]
    assert len(project.rows("gold.t_changes")) == 4


WRONG = [
    ("gold/t.sql", f"CREATE FLOW f AS AUTO CDC INTO t {FROM}", "FLOW_WITHOUT_TABLE"),
    (
        "gold/t.sql",
        f"CREATE STREAMING TABLE t; CREATE FLOW f AS AUTO CDC INTO t {FROM}; "
        "CREATE FLOW g AS INSERT INTO t BY NAME SELECT * FROM STREAM silver.changes",
        "FLOWS_DIFFER",
    ),
    (
        "gold/t.sql",
        f"CREATE STREAMING TABLE t; CREATE FLOW f AS AUTO CDC INTO t {FROM}; "
        f"CREATE FLOW g AS AUTO CDC INTO t {FROM} STORED AS SCD TYPE 2",
        "FLOWS_DIFFER",
    ),
    (
        "gold/t.sql",
        f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM}; "
        "CREATE STREAMING TABLE t_changes AS SELECT * FROM STREAM silver.changes",
        "NAME_TWICE",
    ),
    (
        "gold/t.sql",
        f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM.replace('(id)', '(ids)')}",
        "INPUT_COLUMN_UNKNOWN",
    ),
    ("gold/t.sql", f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM} COLUMNS id, c", "INPUT_COLUMN_UNKNOWN"),
    (
        "gold/t.sql",
        f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM} COLUMNS id, a "
        "STORED AS SCD TYPE 2 TRACK HISTORY ON b",
        "INPUT_COLUMN_UNKNOWN",
    ),
    ("gold/t.sql", f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM} + nothing", "DEFINITION_FAILED"),
    ("gold/t.sql", f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM} STORE AS SCD TYPE 2", "DEFINITION_FAILED"),
    (
        "gold/t.sql",
        f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM.replace('STREAM', 'SNAPSHOT STREAM')}",
        "STATEMENT_NOT_SUPPORTED",
    ),
    (
        "gold/t.sql",
        f"CREATE STREAMING TABLE t; CREATE FLOW f AS AUTO CDC INTO ONCE t {FROM}",
        "STATEMENT_NOT_SUPPORTED",
    ),
    (
        "gold/t.sql",
        f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM.replace('op = ', '')}",
        "DEFINITION_FAILED",
    ),
    (
        "gold/t.sql",
        f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM} APPLY AS TRUNCATE WHEN seq",
        "DEFINITION_FAILED",
    ),
    (
        "gold/t.sql",
        f"CREATE MATERIALIZED VIEW v AS SELECT id, seq, op FROM silver.changes; "
        f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM.replace('silver.changes', 'v')}",
        "INPUT_ROWS_CHANGE",
    ),
]


@pytest.mark.parametrize(("file", "text", "code"), WRONG)
def test_what_can_not_be_is_refused(
    interpreted: SparkSession, tmp_path: Path, file: str, text: str, code: Code
) -> None:
    said = "ONCE stands behind INTO" if "INTO ONCE" in text else ""
    with raises_code(code, match=rf"gold/t\.sql.*{said}"):
        project = Project({**FILES, file: text}, tmp_path, spark=interpreted)
        assert project.tables


EVENTS = """CREATE STREAMING TABLE t TBLPROPERTIES (
  'headwater.decode' = 'debezium', 'headwater.schema' = 'id INT, a STRING'
) FLOW AUTO CDC FROM STREAM bronze.changes KEYS (id) SEQUENCE BY {by}"""
IN_PYTHON = """import headwater as hw

decode = hw.debezium("id INT, a STRING")
t = hw.auto_cdc(source="bronze.changes", keys=["id"], sequence_by="{by}", decode=decode)
"""


def event(op: str, at: int, before: Any = None, after: Any = None, *, of: str = "postgres") -> dict[str, Any]:
    place = {"lsn": at} if of == "postgres" else {"file": f"bin.{at // 10:06}", "pos": at % 10, "row": 0}
    source = {"version": "3.0", "connector": of, "name": "shop", "ts_ms": 5, "table": "t", **place}
    found = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 7, "transaction": None}
    return found if of == "postgres" else {"schema": {"type": "struct", "fields": []}, "payload": found}


@pytest.mark.parametrize("of", ["postgres", "mysql"])
def test_events_of_debezium(interpreted: SparkSession, tmp_path: Path, of: str) -> None:
    """As PostgreSQL's connector sends them without schemas, and MySQL's with them."""
    files = {"bronze/raw.py": FILES["bronze/raw.py"]}
    files |= (
        {"silver/t.sql": EVENTS.format(by="_lsn")}
        if of == "postgres"
        else {"silver/t.py": IN_PYTHON.format(by="struct(_file, _pos, _row)")}
    )
    project = Project(files, tmp_path, spark=interpreted)
    events = [
        event("r", 1, after={"id": 1, "a": "x"}, of=of),
        event("c", 9, after={"id": 2, "a": "y"}, of=of),
        event("u", 12, before={"id": 1, "a": "x"}, after={"id": 1, "a": "z", "added": 1}, of=of),
        event("d", 25, before={"id": 2}, of=of),
        None,
        event("c", 30, after={"id": 3, "a": "w"}, of=of),
    ]
    draw = random.Random(3)
    for sent in (events, draw.sample(events, len(events))):
        project.send("changes", sent)
        project.step()
        assert sorted(project.rows("silver.t")) == [(1, "z"), (3, "w")]
    bad = [{"op": "c"}, event("c", 40, after={"id": "no", "a": "x"}, of=of), "no event"]
    project.send("changes", bad)
    project.step()
    assert sorted(project.rows("silver.t")) == [(1, "z"), (3, "w")]
    assert len(project.rows("quarantine.silver_t_changes")) == len(bad)
    absent = "__debezium_unavailable_value"  # of a column that PostgreSQL stores apart
    sent = [
        event("u", 41, after={"id": 1, "a": absent}, of=of),
        event("u", 42, after={"id": 3, "a": f"no {absent}", "b": absent}, of=of),
        event("d", 43, before={"id": 1, "a": absent}, of=of),
    ]
    deep = json.dumps(event("u", 44, after={"id": 3, "a": absent}, of=of))
    sent.append(deep[:-1] + ', "x": ' + "[" * 990 + "]" * 990 + "}")
    long = json.dumps(event("u", 45, after={"id": 3, "a": f"no {absent}", "b": absent}, of=of))
    sent.append(long[:-1] + ', "x": ' + "9" * 5000 + "}")
    project.send("changes", sent)
    project.step()
    assert sorted(project.rows("silver.t")) == [(3, f"no {absent}")]
    told = [str(said) for (said,) in project.rows("quarantine.silver_t_changes", "reason")]
    assert len(told) == len(bad) + 2 and sum("after.a was not sent" in said for said in told) == 1


def test_flows_that_decode_into_one_table_have_its_quarantine(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    flow = """
{name} = hw.auto_cdc(target="silver.latest", source="bronze.{name}", keys=["id"], sequence_by="seq",
    column_list=["id", "a"], decode=hw.json("id INT, seq INT, a DOUBLE", "quarantine"))
"""
    files = {
        "bronze/raw.py": 'import headwater as hw\nweb, app = hw.topic("web"), hw.topic("app")\n',
        "silver/latest.sql": "CREATE STREAMING TABLE latest",
        "silver/flows.py": "import headwater as hw\n" + "".join(flow.format(name=n) for n in ("web", "app")),
    }
    project = Project(files, tmp_path, spark=interpreted)
    project.send("web", [{"id": 1, "seq": 1, "a": 1}, {"id": 2, "seq": 1, "a": 2, "b": 2}, "no object"])
    project.send("app", [{"id": 3, "seq": 1, "a": 3}, {"id": 4, "seq": 1, "a": 4, "b": 4}]).step()
    held = "silver.latest_changes"
    assert sorted(project.rows("silver.latest")) == [(1, 1), (3, 3)]
    assert quarantine.tables(project.definitions) == [held]
    done = resolve(project.definitions, held, "replay")
    assert (done.replayed, done.failing) == (0, {"malformed": 3})
    twice = files["silver/flows.py"].replace("bronze.app", "bronze.web")
    of_one = files["bronze/raw.py"].replace('hw.topic("app")', 'hw.topic("web")')
    for at, change in enumerate(({"silver/flows.py": twice}, {"bronze/raw.py": of_one})):
        with raises_code("FLOWS_DIFFER", match="decodes records of web into silver.latest"):
            assert Project({**files, **change}, tmp_path / f"twice_{at}", spark=interpreted).tables
    project.change("silver/flows.py", '"quarantine"', '"evolve"').step()
    done = resolve(project.definitions, held, "replay")
    assert (done.replayed, done.rows, done.failing) == (2, 2, {"malformed": 1})
    project.step()
    assert sorted(project.rows("silver.latest")) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert Quarantine(project.lake, held).summary().open == 1
    version = log.head(project.lake.place(held).path)
    before = dict(compare.sides(project.lake, held, version))
    project.send("app", ["no object", {"id": 3, "seq": 0, "a": 3}]).step()
    assert log.head(project.lake.place(held).path) > version
    assert dict(compare.sides(project.lake, held, version)) == before
    project.rebuild(held)
    assert sorted(project.rows("silver.latest")) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert sorted(project.rows("quarantine.silver_latest_changes", "topic")) == [("app",), ("web",)]


def test_a_history_by_the_places_of_a_log(interpreted: SparkSession, tmp_path: Path) -> None:
    """MySQL's have several columns: the sequence is a struct, and so is when a version began."""
    files = {
        "bronze/raw.py": FILES["bronze/raw.py"],
        "silver/t.py": IN_PYTHON.format(by="struct(_file, _pos, _row)").replace(
            "decode=d", "scd=2, decode=d"
        ),
    }
    project = Project(files, tmp_path, spark=interpreted)
    events = [
        event("c", 1, after={"id": 1, "a": "x"}, of="mysql"),
        event("c", 9, after={"id": 2, "a": "y"}, of="mysql"),
        event("u", 12, before={"id": 1, "a": "x"}, after={"id": 1, "a": "z"}, of="mysql"),
        event("d", 25, before={"id": 2}, of="mysql"),
        event("u", 30, before={"id": 1, "a": "z"}, after={"id": 1, "a": "w"}, of="mysql"),
    ]
    draw = seeded(random.randrange(2**32))
    for sent in draw.sample(events, len(events)):
        project.send("changes", [sent])
        project.step()
    project.send("changes", events)
    project.step()
    began, ended = (f"{each}._file || '-' || {each}._pos" for each in ("__START_AT", "__END_AT"))
    assert sorted(project.rows("silver.t", f"id, a, {began}, {ended}"), key=str) == [
        (1, "w", "bin.000003-0", None),
        (1, "x", "bin.000000-1", "bin.000001-2"),
        (1, "z", "bin.000001-2", "bin.000003-0"),
        (2, "y", "bin.000000-9", "bin.000002-5"),
    ]
    project.rebuild("silver.t")
    (same,) = reconcile(project.restart().definitions, ["silver.t"])
    assert same.same


def test_events_of_debezium_are_changes(tmp_path: Path, interpreted: SparkSession) -> None:
    table = """import headwater as hw

@hw.table(source="bronze.changes", decode=hw.debezium("id INT"))
def t(rows):
    return rows
"""
    raw = {"bronze/raw.py": FILES["bronze/raw.py"]}
    with raises_code("PROPERTY_INVALID", match="AUTO CDC"):
        assert Project({**raw, "silver/t.py": table}, tmp_path, spark=interpreted).tables
    wrong = EVENTS.format(by="_lsn").replace("a STRING", "a NOTHING")
    with raises_code("DDL_INVALID", match=r"hw\.debezium"):
        assert Project({**raw, "silver/t.sql": wrong}, tmp_path / "2", spark=interpreted).tables


def test_ls_calls_them_changes_and_a_view(interpreted: SparkSession, tmp_path: Path) -> None:
    project = Project({**FILES, "gold/t.sql": SHORT}, tmp_path, spark=interpreted)
    kinds = {name: inspect.kind(project.definitions, name) for name in ("gold.t_changes", "gold.t")}
    assert kinds == {"gold.t_changes": "changes", "gold.t": "view"}


KEYED = "'headwater.schema' = 'id STRING, a STRING, at TIMESTAMP', 'headwater.tombstones' = 'id'"
FLOW = "FLOW AUTO CDC FROM STREAM bronze.changes KEYS (id) SEQUENCE BY coalesce(at, sent) COLUMNS (id, a)"


def test_tombstones_of_a_compacted_topic_are_deletes(interpreted: SparkSession, tmp_path: Path) -> None:
    with_ = f"TBLPROPERTIES ('headwater.decode' = 'json', {KEYED}, 'headwater.timestamp' = 'sent')"
    latest = """
import headwater as hw

latest = hw.auto_cdc(
    source="bronze.changes",
    keys=["id"],
    sequence_by="coalesce(at, sent)",
    column_list=["id", "a"],
    decode=hw.json("id STRING, a STRING, at TIMESTAMP", timestamp="sent", tombstones="id"),
)
"""
    files = {
        "conf/local.yaml": "kafka: embedded\n",
        "bronze/raw.py": 'import headwater as hw\nchanges = hw.topic("changes", compacted=True)\n',
        "silver/latest.py": latest,
        "silver/history.sql": f"CREATE STREAMING TABLE history {with_} {FLOW} STORED AS SCD TYPE 2",
    }
    project = Project(files, tmp_path, spark=interpreted)

    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)

    def change(key: str, a: str, second: int) -> Record:
        return Record({"id": key, "a": a, "at": at(second).isoformat()}, key=key, timestamp=at(59))

    # A key is a text, which Kafka Connect writes as JSON.
    gone = [Record(None, key=key, timestamp=at(second)) for key, second in (('"x"', 20), ("y", 5))]
    gone += [Record(None, key='{"id": "z"}', timestamp=at(20))]
    records = [change("x", "one", 10), gone[1], change("y", "two", 10), gone[0], change("x", "late", 15)]
    records += [change("z", "three", 10), gone[2]]
    for part in (records[:3], records[3:], records):  # the last is all of it once more
        project.send("changes", part).step()
    assert project.rows("silver.latest") == [("y", "two")]
    assert sorted(project.rows("silver.history"), key=str) == [
        ("x", "late", at(15), at(20)),
        ("x", "one", at(10), at(15)),
        ("y", "two", at(10), None),
        ("z", "three", at(10), at(20)),
    ]
    project.send("changes", [Record(None, timestamp=at(1))]).step()  # of no key
    assert len(project.rows("quarantine.silver_latest_changes")) == 1


def test_what_a_flow_says_of_its_table_is_said_where_that_is_declared(tmp_path: Path) -> None:
    flow = "hw.auto_cdc(source='silver.changes', target='gold.t', keys=['id'], sequence_by='seq', {})"
    declared = {**FILES, "gold/t.sql": "CREATE STREAMING TABLE t"}
    for more, said in (("", ""), ("trigger='9s'", "limits"), ("cluster_by=['id']", "cluster_by")):
        project = Project(
            {**declared, "gold/f.py": f"import headwater as hw\nf = {flow.format(more)}\n"}, tmp_path
        )
        if said:
            with raises_code(
                "PROPERTY_INVALID", match=f"says limits or {said}|{said} or cluster_by of gold.t"
            ):
                _ = project.definitions
        else:
            assert "gold.t_changes" in project.definitions.tables
