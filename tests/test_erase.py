"""Records are erased from bronze and from all that was made of them, whatever is killed; and it is proven."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner
from visits import COUNTS, DERIVED, ENDED, RAW, TOP, VISITS, Visits, of_new_lake

from headwater.cli import app
from headwater.common.progress import Board
from headwater.errors.codes import Code
from headwater.operations import erase as erasing
from headwater.operations import maintain, replay, savepoints
from headwater.operations.backfill import backfill
from headwater.operations.erase import Erased, proof
from headwater.operations.rebuild import abort, rebuild
from headwater.operations.savepoints import copies
from headwater.operations.savepoints.cut.whole import whole
from headwater.query.inspect.history import history
from headwater.query.sources import of_project
from headwater.run.supervisor import Options, Run
from headwater.storage import log, past
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.target import Target
from headwater.testing import Record

SINK = f"{COUNTS}->mine"
FILES = {
    "gold/mine.py": '''import json
from pathlib import Path

import headwater as hw
from headwater.errors import SinkUnavailable
from headwater.connectors.sinks import CHANGE, Sink

HERE = Path(__file__).parent


class Mine(Sink):
    """What the table holds, by its key, in a file."""

    def open(self, table):
        return None

    def write(self, changes):
        if (HERE / "down").exists():
            raise SinkUnavailable("mine: down", code="SINK_UNAVAILABLE")
        file = HERE / "held"
        held = json.loads(file.read_text()) if file.exists() else {}
        for _, rows in changes.batches():
            for row in rows.to_pylist():
                if row[CHANGE] == "delete":
                    del held[row["user"]]
                else:
                    held[row["user"]] = row["visits"]
        file.write_text(json.dumps(held))

    def close(self):
        pass


mine = hw.sink("gold.counts", Mine, name="mine")
''',
}


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory, interpreted: SparkSession) -> Visits:
    case = Visits(tmp_path_factory.mktemp("erase"), interpreted, FILES)
    draw = random.Random(7)
    for _ in range(4):
        case.visit(draw)
    case.drain(*DERIVED, SINK)
    return case


@pytest.fixture
def case(drained: Visits, tmp_path: Path) -> Visits:
    return drained.copied(tmp_path / "project")


def erase(case: Visits, where: str = "user = 'b'", table: str = VISITS, **options: Any) -> Erased:
    project = case.definitions
    found = erasing.unfinished(project) or erasing.look(project, table, where)
    return erasing.erase(project, found, notices=Board(notices=StringIO()), **options)


def values(case: Visits) -> list[bytes]:
    """What is in any Parquet file below the lake that holds raw records, live or not."""
    found = []
    for path in case.lake.root.rglob("*.parquet"):
        if "value" in pq.read_schema(path).names:
            found += [value for value in pq.read_table(path, partitioning=None)["value"].to_pylist() if value]
    return found


def of_b(case: Visits) -> int:
    return sum(b'"user": "b"' in value for value in values(case))


def held(case: Visits) -> dict[str, int]:
    return dict(json.loads((case.root / "gold" / "held").read_text()))


def test_all_that_was_made_of_records_goes_with_them(case: Visits) -> None:
    everything, raw, count = case.everything(), case.rows(RAW), of_b(case)
    assert count > 9 and all(any("b" in row for row in everything[name]) for name in (VISITS, COUNTS, TOP))
    assert any("b" in row for row in everything[f"{ENDED}_late"]) and "b" in held(case)
    case.rebuild(COUNTS)  # so that there are generations before
    case.drain(*DERIVED, SINK)
    done = erase(case)
    assert (done.records, done.bronze, set(done.tables)) == (count, [RAW], set(DERIVED))
    assert done.searched.files > 3 and done.sinks == [SINK]
    assert of_b(case) == 0 and len(case.rows(RAW)) == len(raw) - count
    after = case.everything()
    assert not [row for rows in after.values() for row in rows if "b" in row]
    assert after == of_new_lake(case)
    assert held(case) == {row[0]: row[1] for row in case.rows(COUNTS)}


OTHERS, SUMS, THEIRS = "gold.others", "gold.sums", "gold.others->theirs"


def with_others(case: Visits, source: str, summed: str = OTHERS, *, rebuilt: bool = True) -> None:
    """Another topic, two tables, and a sink, which has sent what they were before they were rebuilt."""
    theirs = FILES["gold/mine.py"].replace("held", "theirs").replace("mine", "theirs").replace(COUNTS, OTHERS)
    visits = case.root.joinpath("silver/visits.py").read_text()
    others = (
        "CREATE STREAMING TABLE gold.others AS SELECT user, count(*) AS visits FROM STREAM {} GROUP BY user"
    )
    case.write(
        {
            "bronze/other.py": "import headwater as hw\nother = hw.topic('other')\n",
            "silver/others.py": visits.replace("bronze.raw", "bronze.other").replace("visits", "others"),
            "gold/others.sql": others.format(source),
            "gold/sums.sql": f"CREATE MATERIALIZED VIEW gold.sums AS SELECT sum(visits) AS n FROM {summed}",
            "gold/theirs.py": theirs,
        }
    )
    case.send("other", [Record(json.dumps({"user": user, "n": 1, "at": 1})) for user in "xyx"])
    case.drain("silver.others", OTHERS, SUMS, THEIRS)
    case.write({"gold/others.sql": others.format("silver.others")})
    case.change("gold/sums.sql", summed, OTHERS)  # which goes on, and is computed anew
    case.drain(SUMS)
    assert not rebuilt or case.rebuild(OTHERS).swapped


def sent_by_theirs(case: Visits) -> dict[str, int]:
    return dict(json.loads((case.root / "gold" / "theirs").read_text()))


def earlier(case: Visits, *names: str) -> list[Path]:
    """The earlier generations of tables that there are."""
    places = case.lake.places()
    found = (path for name in names for path in case.lake.at(name, 1).parent.iterdir())
    return sorted(path for path in found if path not in {place.path for place in places.values()})


def test_generations_that_have_nothing_to_do_with_the_records_stay(case: Visits) -> None:
    with_others(case, "silver.others")
    case.rebuild(COUNTS)
    before = earlier(case, OTHERS, SUMS)
    assert len(before) == 2 and earlier(case, COUNTS)
    done = erase(case)
    assert (set(done.tables), done.sinks) == (set(DERIVED), [SINK])
    assert earlier(case, OTHERS, SUMS) == before and not earlier(case, *DERIVED)
    case.send("other", [Record(json.dumps({"user": "x", "n": 1, "at": 1}))])
    case.drain("silver.others", OTHERS, SUMS, THEIRS)  # the sink goes on from the generation that it has sent
    assert sent_by_theirs(case) == {"x": 3, "y": 1}


def test_generations_of_earlier_definitions_that_read_the_records_go(case: Visits) -> None:
    with_others(case, VISITS)
    assert "b" in sent_by_theirs(case) and len(earlier(case, OTHERS, SUMS)) == 2
    done = erase(case)
    assert set(done.tables) == {*DERIVED, SUMS}  # which may have read what the other was
    assert done.sinks == [SINK, THEIRS]
    assert not earlier(case, OTHERS, SUMS) and sent_by_theirs(case) == {"x": 2, "y": 1}


def test_a_generation_that_was_made_of_the_records_before_its_definition_changed_goes(case: Visits) -> None:
    with_others(case, "silver.others", summed=COUNTS)
    (kept,) = earlier(case, OTHERS)
    assert len(earlier(case, SUMS)) == 1
    assert erase(case).sinks == [SINK]
    assert earlier(case, OTHERS, SUMS) == [kept]


def test_a_live_table_that_a_former_definition_made_of_the_records_is_made_anew(case: Visits) -> None:
    with_others(case, "silver.others", summed=COUNTS, rebuilt=False)
    assert case.lake.place(SUMS).generation == 1 and SUMS in erasing.made_of(case.definitions, [RAW])
    assert set(erase(case).tables) == {*DERIVED, SUMS} and not earlier(case, SUMS)
    assert set(erase(case, "user = 'c'").tables) == set(DERIVED)  # now it is of others alone


def test_a_live_table_that_has_read_an_earlier_generation_made_of_the_records_is_made_anew(
    case: Visits,
) -> None:
    with_others(case, VISITS, rebuilt=False)
    case.write(
        {"gold/sums.sql": "CREATE MATERIALIZED VIEW gold.sums AS SELECT sum(n) AS n FROM silver.others"}
    )
    case.drain(SUMS)
    assert case.rebuild(OTHERS).swapped
    assert case.lake.place(SUMS).generation == 1
    assert set(erase(case).tables) == {*DERIVED, SUMS} and not earlier(case, OTHERS, SUMS)
    assert set(erase(case, "user = 'c'").tables) == set(DERIVED)


def test_streams_go_on_and_a_replay_brings_nothing_back(case: Visits) -> None:
    erase(case)
    case.visit(random.Random(8))  # of b, too: who is erased may come again
    case.drain(*DERIVED, SINK)
    assert of_b(case) > 0 and "b" in held(case)
    assert case.everything() == of_new_lake(case)
    assert case.rebuild(VISITS, verify=True).swapped
    assert erase(case).records > 0 and of_b(case) == 0
    assert case.rebuild(VISITS).swapped
    assert not [row for rows in case.everything().values() for row in rows if "b" in row]


def test_the_order_of_what_is_left_stays(case: Visits) -> None:
    before = [offset for (*_, offset) in _places(case)]
    gone = {record for record in before if record % 3 == 0}
    assert erase(case, '"offset" % 3 = 0', RAW).records == len(gone)
    assert [offset for (*_, offset) in _places(case)] == [each for each in before if each not in gone]
    (first, *older) = history(of_project(case.root, "local").named([RAW])[0], 9).versions
    assert first.what == "records erased" and not older and log.first(case.bronze.place.path) > 0


def _places(case: Visits) -> list[tuple[Any, ...]]:
    columns = ["cluster", "topic", "partition", "offset"]
    files = log.snapshot(case.bronze.place.path, case.bronze.version)
    return [
        tuple(row.values()) for file in files for row in pq.read_table(file.path, columns=columns).to_pylist()
    ]


def test_every_table_that_has_the_records_loses_them(case: Visits) -> None:
    case.write({"bronze/twin.py": "import headwater as hw\ntwin = hw.topic('raw')\n"})
    twin = Target(case.lake.create("bronze.twin", case.columns, properties={}))
    rows = case.bronze.held(case.columns)
    twin.append(twin.write(rows, "twin"), Identity("bronze.twin", 1, 0, {"raw": {"0": case.sent}}))
    found = erasing.look(case.definitions, VISITS, "user = 'b'")
    assert found.records == dict.fromkeys([RAW, "bronze.twin"], len(found.places))
    before = dataclasses.replace(found, records={RAW: len(found.places)})  # then the other was behind
    assert (
        erasing.erase(case.definitions, before, notices=Board(notices=StringIO())).bronze
        == [RAW, "bronze.twin"]
        and of_b(case) == 0
    )
    assert len(case.rows("bronze.twin")) == len(case.rows(RAW))


def test_malformed_records_are_said_and_can_be_meant(case: Visits) -> None:
    found = erasing.look(case.definitions, VISITS, "user = 'b'")
    malformed = len(case.rows("quarantine.silver_visits"))
    assert found.malformed == malformed > 0
    done = erase(case, "value = '{'::BLOB OR user = 'b'")
    assert done.records == len(found.places) + malformed
    assert "quarantine.silver_visits" not in case.lake.places() and b"{" not in values(case)


def test_many_people_are_erased_at_once(case: Visits) -> None:
    (gone := case.root / "gone.csv").write_text("id\na\nb\n")
    assert erase(case, f"user IN (SELECT id FROM read_csv('{gone}'))").records > 20
    assert {row[0] for row in case.rows(COUNTS)} == {"c"} == held(case).keys()


@pytest.mark.parametrize(
    ("table", "where", "code", "why"),
    [
        (VISITS, "person = 'b'", "CONDITION_INVALID", r'--where person = .b.: .*column "person" not found'),
        (VISITS, "user = 'b' AND", "CONDITION_INVALID", "--where .*: Parser Error"),
        (VISITS, "true); DROP TABLE records; SELECT (1", "CONDITION_INVALID", "more than one statement"),
        (VISITS, "user::INT = 1", "CONDITION_INVALID", "--where .*: Conversion Error"),
        (
            COUNTS,
            "user = 'b'",
            "NOTHING_DECODED",
            r"gold\.counts decodes no records; name one that does: silver\.visits$",
        ),
        ("silver.nope", "true", "UNKNOWN_TABLE", r"unknown table 'silver\.nope'"),
    ],
)
def test_what_can_not_be_meant_is_said(case: Visits, table: str, where: str, code: Code, why: str) -> None:
    with raises_code(code, match=why):
        erasing.look(case.definitions, table, where)


def test_what_would_bring_them_back_is_refused(case: Visits) -> None:
    everything = case.everything()
    savepoints.create(case.definitions, "before")
    with raises_code("SAVEPOINTS_HOLD_RECORDS"):
        erase(case)
    savepoints.drop(case.lake, "before")
    assert not case.rebuild(COUNTS, swap=False).swapped
    with raises_code("REBUILD_UNDER_WAY", match="a rebuild is under way"):
        erase(case)
    abort(case.definitions)
    top = (case.root / "gold" / "top.sql").rename(case.root / "top.sql")
    with raises_code("TABLE_WITHOUT_DEFINITION", table="gold.top"):
        erase(case)
    top.rename(case.root / "gold" / "top.sql")
    short = "kafka: embedded\nmaintain: {keep: 0s, tables: {bronze.raw: {retention: 1ms}}}\n"
    case.write({"conf/local.yaml": short})
    case.visit(random.Random(8))
    files = [file.path for file in log.snapshot(case.bronze.place.path, case.bronze.version)]
    case.bronze.expire(files[:1], datetime.now(UTC))
    with raises_code("HISTORY_GONE"):
        erase(case)
    assert case.everything() == everything and erasing.unfinished(case.definitions) is None
    assert erase(case, since="earliest").records and of_b(case) == 0


def broken_off(monkeypatch: pytest.MonkeyPatch, at: str, of: tuple[str, ...], do: Any) -> None:
    """A kill at a step, as far as the process can see it."""

    def reach(step: str, flow: str) -> None:
        if step == at and flow in of:
            raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr("headwater.runtime.failpoints.reach", reach)
        with pytest.raises(SystemExit):
            do()


def test_what_killed_commands_left_of_savepoints_goes(case: Visits, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = case.lake.root / "_savepoints"
    create = lambda: savepoints.create(case.definitions, "cut")  # noqa: E731
    broken_off(monkeypatch, "made", ("savepoint",), create)
    savepoints.create(case.definitions, "half")
    (kept / "half").rename(kept / ".half.part")  # a drop that was killed
    shutil.rmtree(kept / ".half.part" / "silver")
    assert sorted(path.name for path in kept.iterdir()) == [".cut.part", ".half.part"]
    assert erase(case).records > 9 and of_b(case) == 0
    assert not any(kept.iterdir())


def test_what_was_left_of_savepoints_does_not_stop_an_erase_that_goes_on(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    savepoints.create(case.definitions, "half")
    kept, aside = case.lake.root / "_savepoints", case.root / "aside"
    (kept / "half").rename(aside)
    broken_off(monkeypatch, "noted", ("erase",), lambda: erase(case))
    aside.rename(kept / "half")  # it was begun before
    with raises_code("SAVEPOINTS_HOLD_RECORDS"):
        erase(case)
    (kept / "half").rename(kept / ".half.part")
    assert erase(case).records > 9 and not any(kept.iterdir())


def test_a_savepoint_that_is_being_made_is_let_be(case: Visits) -> None:
    with whole(case.lake.root / "_savepoints" / "live") as part:
        with raises_code("SAVEPOINT_BUSY", file=".live.part"):
            erase(case)
        assert part.is_dir() and erasing.unfinished(case.definitions) is None


def test_unfinished_files_of_other_tables_do_not_stop_it(case: Visits) -> None:
    case.write({"bronze/twin.py": "import headwater as hw\ntwin = hw.topic('twin')\n"})
    twin = Target(case.lake.create("bronze.twin", case.columns, properties={}))
    rows = case.columns.empty_table()
    staged = twin.write(pa.Table.from_pylist([{"topic": "twin"}], case.columns), "000000000000")
    intent = Intent("bronze.twin", 1, 0, {"twin": {"0": 1}}, staged={"bronze.twin": staged})
    IntentFile(case.lake.flow_folder("bronze.twin")).write(intent)
    left = [
        twin.place.path / name
        for name in ("together-1f/part-00000.parquet", "000000000000-2e/_temporary/0/part-00000.parquet")
    ]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"PAR1half of a fi")
    assert erase(case).records > 9 and of_b(case) == 0
    assert not any(path.exists() for path in left)
    assert twin.append(staged, Identity("bronze.twin", 1, 0, {})) == 1 and len(twin.held(rows.schema)) == 1


def test_a_table_s_file_that_can_not_be_read_is_named(case: Visits) -> None:
    found = erasing.look(case.definitions, VISITS, "user = 'nobody'")
    file = Path(case.bronze.files()[0])
    file.write_bytes(file.read_bytes()[:-9])
    with raises_code("FILE_DAMAGED", match=rf"{file.name} is no whole Parquet file"):
        proof.search(case.lake, found.places)


def test_rows_do_not_expire_while_an_erase_is_under_way(
    case: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = "kafka: embedded\nmaintain: {keep: 0s, tables: {bronze.raw: {retention: 1ms}}}\n"
    case.write({"conf/local.yaml": short})
    broken_off(monkeypatch, "noted", ("erase",), lambda: erase(case))
    with raises_code("ERASE_UNDER_WAY"):
        maintain.maintain(case.definitions)
    assert erase(case).records > 9 and of_b(case) == 0 and case.rows(RAW)
    assert {one.table: one.expired for one in maintain.maintain(case.definitions)}[RAW]


STEPS = ["noted", "written", "taken", "forgotten", "planned", "holding", "swapped", "rebuilt", "published"]


@pytest.mark.parametrize(
    "at", ["written", "swapped", *(pytest.param(at, marks=pytest.mark.torture) for at in STEPS)]
)
def test_an_erase_that_was_killed_goes_on(case: Visits, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    broken_off(monkeypatch, at, ("erase", "rebuild"), lambda: erase(case))
    project, history = case.definitions, case.root / "history.json"
    history.write_text('{"value": "{}"}\n')
    for begin in (
        lambda: Run(project, Options(once=True), Board(notices=StringIO()))(),
        lambda: savepoints.create(project, "now"),
        lambda: maintain.maintain(project),
        lambda: copies.copy(project, case.root.with_name("copy")),
        lambda: backfill(project, RAW, str(history), "json"),
        lambda: rebuild(project, [VISITS]),
        lambda: replay.resolve(project, VISITS, "replay"),
    ):
        with raises_code("ERASE_UNDER_WAY"):
            begin()
    top = (case.root / "gold" / "top.sql").rename(case.root / "top.sql")
    with raises_code("TABLE_WITHOUT_DEFINITION", table="gold.top"):
        erase(case)
    top.rename(case.root / "gold" / "top.sql")
    done = erase(case)  # goes on
    assert done.records > 9 and of_b(case) == 0 and "b" not in held(case)
    assert case.everything() == of_new_lake(case)
    assert erasing.unfinished(project) is None
    case.visit(random.Random(9))
    case.drain(*DERIVED, SINK)
    assert case.everything() == of_new_lake(case)


def test_what_a_copy_keeps_is_not_erased_before_it_is_done(case: Visits) -> None:
    with past.keeping(case.lake), raises_code("LEASE_HELD", match="a copy is being made"):
        erase(case)
    assert erasing.unfinished(case.definitions) is None
    erase(case)
    assert "b" not in held(case)


def test_a_sink_that_is_down_is_sent_it_later(case: Visits) -> None:
    down = case.root / "gold" / "down"
    down.touch()
    with raises_code("SINK_UNAVAILABLE", match="mine: down"):
        erase(case)
    assert "b" in held(case)
    down.unlink()
    erase(case)
    assert "b" not in held(case)


def test_what_a_sink_that_is_off_was_sent_is_left_to_a_person(case: Visits) -> None:
    conf = (case.root / "conf/local.yaml").read_text()
    sink = 'import headwater as hw\n\naway = hw.postgres_sink("gold.counts", connection="dwh")\n'
    case.write({"gold/away.py": sink, "conf/local.yaml": f"{conf}\npostgres: {{dwh: off}}\n"})
    assert any("gold.counts->" in each and "it is off" in each for each in erase(case).left)


def test_what_a_sink_that_is_no_more_was_sent_is_left_to_a_person(case: Visits) -> None:
    (case.root / "gold" / "mine.py").unlink()
    (said,) = [each for each in erase(case).left if SINK in each]
    assert said == f"what {SINK} has been sent, a sink that the project has no more: remove it there"


def test_a_sink_that_was_broken_off_in_a_batch_ends_it_first(case: Visits) -> None:
    case.visit(random.Random(11))
    case.drain()
    down = case.root / "gold" / "down"
    down.touch()
    with raises_code("SINK_UNAVAILABLE", match="mine: down"):
        case.drain(*DERIVED, SINK)
    down.unlink()
    with raises_code("BATCH_BROKEN_OFF", table="gold.counts"):
        erase(case)
    assert erasing.unfinished(case.definitions) is None
    case.drain(*DERIVED, SINK)
    erase(case)
    assert "b" not in held(case)


def test_the_search_finds_what_is_left(case: Visits) -> None:
    found = erasing.look(case.definitions, VISITS, "user = 'b'")
    with raises_code("RECORDS_LEFT"):
        proof.search(case.lake, found.places)


def test_a_person_is_asked_first(case: Visits) -> None:
    def headwater(*args: str) -> Any:
        return CliRunner().invoke(app, ["erase", *args, "--project", str(case.root)])

    meant = (VISITS, "--where", "user = 'b'")
    asked = headwater(*meant)
    said = " ".join(asked.output.replace("│", " ").split())
    assert asked.exit_code == 2 and "this erases" in said and "say --yes" in said
    assert of_b(case) > 0
    done = headwater(*meant, "--yes")
    assert done.exit_code == 0, done.output
    assert f"records of {RAW}" in done.output and "none of them is in the" in done.output
    assert "left to you" in done.output and of_b(case) == 0
    again = headwater(*meant, "--yes")
    assert again.exit_code == 0 and f"no record of {VISITS} is meant" in again.output
    assert headwater().exit_code == headwater(VISITS).exit_code == 2
