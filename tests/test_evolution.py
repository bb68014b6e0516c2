"""Columns are added to a table in place; every other change of them is refused until the table is rebuilt."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from visits import COUNTS, ENDED, TOP, VISITS, Visits

from headwater import query
from headwater.flows.declared import flow_of
from headwater.planner.changes import Planned, plan
from headwater.planner.changes.facts import columns_of
from headwater.planner.changes.verdict import judge
from headwater.storage import log
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

KEPT, SLIM, RUNS, SENT = "silver.kept", "silver.slim", "gold.runs", "silver.visits->file"
MORE = {
    "silver/kept.sql": "CREATE STREAMING TABLE silver.kept AS SELECT * FROM STREAM silver.visits",
    "silver/slim.sql": """CREATE STREAMING TABLE silver.slim AS
        SELECT user, CAST(n AS INT) AS n, at AS since, 1 AS extra FROM STREAM silver.visits""",
    "silver/sent.py": '''import json
from pathlib import Path
import headwater as hw
from headwater.connectors.sinks import Sink
class File(Sink):
    """Each row as a line."""
    def open(self, table):
        return None
    def write(self, changes):
        with (Path(__file__).parent / "sent").open("a") as file:
            for _, rows in changes.batches():
                for row in rows.to_pylist():
                    print(json.dumps([row["_source"]["offset"], row.get("more", "none")]), file=file)
    def close(self):
        pass
sent = hw.sink("silver.visits", File, name="file")
''',
    "gold/runs.py": """import headwater as hw
@hw.process(source="silver.visits", keys=["user"], event_time="event_time", delay="10 seconds",
            columns="user STRING, n BIGINT", state="n BIGINT")
def runs(row, user):
    if row is not None:
        yield {"user": row["user"], "n": row["n"]}
""",
    "quality/silver.visits.json": json.dumps(
        {
            "name": "silver.visits",
            "expectations": [
                {
                    "type": "expect_compound_columns_to_be_unique",
                    "kwargs": {"column_list": ["user", "at"]},
                    "meta": {"action": "warn"},
                }
            ],
        }
    ),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, interpreted: SparkSession) -> Visits:
    case = Visits(tmp_path_factory.mktemp("evolution"), interpreted, MORE)
    for seed in range(4):
        case.visit(random.Random(seed))
    case.drain(VISITS, KEPT, SLIM, COUNTS, TOP, ENDED, RUNS, SENT)
    return case


@pytest.fixture
def case(filled: Visits, tmp_path: Path) -> Visits:
    return filled.copied(tmp_path / "project")


def planned(case: Visits) -> dict[str, Planned]:
    return {line.table: line for line in plan(case.definitions)}


def both(case: Visits, sql: str, at: str | None = None) -> list[tuple[Any, ...]]:
    """What DuckDB and Spark both say."""
    said = [query.run(sql, project=case.root, engine=engine, at=at).rows for engine in ("duckdb", "spark")]
    assert said[0] == said[1]
    return said[0]


def drain(case: Visits, *names: str) -> None:
    """Run some tables until nothing is left of what those above them hold now."""
    context = case.once()
    for name in context.project.names():
        if name not in names:
            context.heads.end(name)
    for name in names:
        flow_of(context, name).run()
        context.heads.end(name)


def sent(case: Visits) -> dict[int, Any]:
    return dict(json.loads(line) for line in (case.root / "silver/sent").read_text().splitlines())


CHANGES = [
    (SLIM, "AS INT", "AS BIGINT", "columns: n int32 → int64", "v.user, v.n, v.at, 1"),
    pytest.param(
        *(SLIM, "AS since", "AS began", "columns: - since int64, + began int64", "v.user, v.n, v.at, 1"),
        marks=pytest.mark.torture,
    ),
    pytest.param(
        *(SLIM, ", 1 AS extra", "", "columns: - extra int32", "v.user, v.n, v.at"),
        marks=pytest.mark.torture,
    ),
    (TOP, "'user'", "'place'", "keys: user → place", None),
    (ENDED, "'1 minute'", "'2 minutes'", "its query or function changed", None),
]


@pytest.mark.parametrize(("table", "old", "new", "why", "same"), CHANGES)
def test_what_can_not_go_on_is_refused_until_it_is_rebuilt(
    case: Visits, table: str, old: str, new: str, why: str, same: str | None
) -> None:
    count = f"SELECT count(*) FROM {table}"
    before = both(case, count)
    case.change(f"{table.replace('.', '/')}.sql", old, new)
    found = planned(case)[table].verdict
    assert (found.effect, found.why[0].startswith(why)) == ("rebuild", True), found
    with raises_code(
        "DEFINITION_CHANGED", match=f"{table} can't go on as it was changed: .*headwater rebuild {table}"
    ):
        drain(case, table)
    assert both(case, count) == before
    assert not case.rebuild(table, swap=False).swapped
    assert both(case, count) == before
    assert case.rebuild(table).swapped
    assert planned(case)[table].verdict.effect == "unchanged"
    if table == ENDED:
        ((whole,),) = both(case, f"SELECT sum(visits) FROM {ENDED} WHERE minute(since) % 2 = 0")
        ((late,),) = both(case, f"SELECT count(*) FROM {ENDED}_late")
        ((held,),) = both(case, f"SELECT coalesce(sum(visits), 0) FROM {ENDED}__state")
        assert [(whole + late + held,)] == both(case, f"SELECT count(*) FROM {VISITS}")
    else:
        wanted = f"SELECT {same} FROM {VISITS} v" if same else f"SELECT user, total, place FROM {TOP}"
        assert sorted(both(case, f"SELECT * FROM {table}")) == sorted(both(case, wanted))
        assert [(len(both(case, wanted)),)] == both(case, count)


def test_columns_are_added_in_place(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, first = random.Random(9), len(case.rows(KEPT))
    case.visit(draw)
    drain(case, VISITS)  # the tables below have rows of this batch to read yet
    since, version = case.sent, log.head(case.lake.place(VISITS).path)
    added = "column more added: NULL in the rows before; a rebuild fills them"
    case.change("silver/visits.py", '"n >= 0")', '"n >= 0").withColumn("more", F.lit(7))')
    case.change("silver/kept.sql", "SELECT *", "SELECT *, coalesce(more, -1) AS known")
    found = planned(case)
    assert (found[VISITS].verdict.effect, found[VISITS].verdict.why[0]) == ("resumes", added)
    assert (found[KEPT].verdict.effect, found[KEPT].verdict.why[0]) == ("resumes", added)
    assert {found[name].verdict.effect for name in (COUNTS, TOP, ENDED, SLIM, RUNS)} == {"unchanged"}

    case.visit(draw)
    drain(case, VISITS)
    for name in (KEPT, ENDED, COUNTS, RUNS, SENT):
        monkeypatch.setattr("headwater.flows.rows.FEW", 0 if name == KEPT else 10_000)
        drain(case, name)
    case.visit(draw)
    monkeypatch.setattr("headwater.flows.rows.FEW", 0)
    drain(case, VISITS, KEPT)
    monkeypatch.undo()

    rows = f"SELECT _source.offset < {since} AS old, more, count(*) FROM {VISITS} GROUP BY 1, 2 ORDER BY 1"
    (new, _, fresh), (old, _, stale) = both(case, rows)
    assert both(case, rows) == [(False, 7, fresh), (True, None, stale)] and (new, old) == (False, True)
    assert query.run(f"SELECT * FROM {VISITS}", project=case.root).columns[-1] == "more"
    was = query.run(f"SELECT * FROM {VISITS}", project=case.root, at=str(version))
    assert (len(was.rows), "more" in was.columns) == (stale, False)
    assert both(case, f"SELECT count(*) FROM {VISITS}", at=str(version + 1)) == [(stale,)]
    # Of its own rows of before it knows nothing; of those it reads now, that they have none.
    held = f"SELECT known, count(*), count(more) FROM {KEPT} GROUP BY 1 ORDER BY 1 NULLS FIRST"
    assert both(case, held) == [(None, first, 0), (-1, stale - first, 0), (7, fresh, fresh)]
    assert {more for _, more in sent(case).items()} == {"none", None, 7}
    late = query.run(f"SELECT DISTINCT more FROM {ENDED}_late", project=case.root).rows
    assert set(late) == {(None,), (7,)}
    assert case.lake.place(VISITS).generation == 1

    assert case.rebuild(VISITS).swapped
    assert both(case, f"SELECT more, count(*) FROM {VISITS} GROUP BY 1") == [(7, fresh + stale)]
    assert both(case, f"SELECT DISTINCT more, known FROM {KEPT}") == [(7, 7)]
    assert {line.verdict.effect for line in planned(case).values()} == {"unchanged"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_about_the_commit_that_adds_leaves_a_table_that_goes_on(
    case: Visits, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    add = Target.add

    def killed(target: Target, columns: pa.Schema) -> list[str]:
        if when == "after":
            add(target, columns)
        raise SystemExit

    case.change("silver/slim.sql", "1 AS extra", f"1 AS extra, user AS {when}")
    rows = case.rows(SLIM)
    monkeypatch.setattr(Target, "add", killed)
    with pytest.raises(SystemExit):
        drain(case, SLIM)
    monkeypatch.setattr(Target, "add", add)
    have = query.run(f"SELECT * FROM {SLIM}", project=case.root)
    assert (len(have.rows), when in have.columns) == (len(rows), when == "after")
    assert planned(case)[SLIM].verdict.effect in ("resumes", "unchanged")
    case.visit(random.Random(5))
    drain(case, VISITS, SLIM)
    found = both(case, f"SELECT count(*), count({when}), count(*) FILTER (WHERE {when} = user) FROM {SLIM}")
    ((everything, filled, right),) = found
    assert len(rows) < everything and right == filled == everything - len(rows)


def test_a_table_that_holds_nothing_yet_gets_columns_too(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    one, two = (pa.schema([(name, pa.int64()) for name in names]) for names in ("a", "ab"))
    target = Target(lake.create("silver.x", one, properties={}))
    assert (target.add(one), target.add(two), target.version) == ([], ["b"], 1)
    again = Target(lake.place("silver.x"))
    assert (again.add(two), again.version, again.flows) == ([], 1, {})
    again.append(again.write(pa.table({"a": [1], "b": [2]}), "0"), Identity("silver.x", 1, 0, {}))
    with raises_code("WRITTEN_BY_OTHERS", match="is past version 1"):
        target.add(pa.schema([*two, ("c", pa.int64())]))
    assert Target(lake.place("silver.x")).last("silver.x") == 0


def test_columns_are_told_by_their_whole_types() -> None:
    text = (
        "at timestamp[us, tz=UTC], price decimal128(10, 2), place struct<a: int64, b: list<element: string>>"
    )
    assert columns_of(text) == dict(part.split(" ", 1) for part in text.replace(", p", "\np").split("\n"))
    assert columns_of("") == {"": ""}


def test_names_of_columns_may_have_spaces() -> None:
    text = "first name string, net (EUR) decimal128(10, 2), a place struct<a b: int64, c: string>, n int64"
    assert columns_of(text) == {
        "first name": "string",
        "net (EUR)": "decimal128(10, 2)",
        "a place": "struct<a b: int64, c: string>",
        "n": "int64",
    }
    before = {"kind": "rows", "columns": "first name string"}
    assert judge(before, before | {"columns": "first name string, first visit int64"}).why == (
        "column first visit added: NULL in the rows before; a rebuild fills them",
    )
    assert judge(before, before | {"columns": "last name string"}).why == (
        "columns: - first name string, + last name string",
    )


def test_of_rows_columns_may_come_and_change_places_and_nothing_else() -> None:
    def judged(now: str, kind: str = "rows") -> tuple[str, str]:
        before = {"kind": kind, "columns": "n int32, place struct<a: int64, b: string>"}
        found = judge(before, {**before, "columns": now})
        return found.effect, found.why[0]

    same = "place struct<a: int64, b: string>"
    assert judged(f"m int64, {same}, n int32")[0] == "resumes"
    assert judged(f"m int64, {same}, n int32", "process")[0] == "rebuild"
    assert judged(f"{same}, n int32") == (
        "resumes",
        "the order of its columns changed: it keeps the one it has; a rebuild applies it",
    )
    more = "place struct<a: int64, b: string, c: date32[day]>"
    assert judged(f"n int32, {more}") == ("rebuild", f"columns: {same} → {more.removeprefix('place ')}")
    assert judged("n int32") == ("rebuild", f"columns: - {same}")
