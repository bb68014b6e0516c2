"""Files that arrive in a folder: each is in its table once, in order, and none is lost without a word."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from landed import EPOCH, Landed, parquet, times
from pyspark.sql import SparkSession
from raising import raises_code
from typer.testing import CliRunner

from headwater import query
from headwater.cli import app
from headwater.connectors.files.file import File
from headwater.connectors.files.folder import Folder
from headwater.connectors.files.ledger import Ledger
from headwater.flows.declared import flow_of
from headwater.operations import rebuild as rebuilding
from headwater.operations.replay import resolve
from headwater.project.load import load_project
from headwater.quality.quarantine import Quarantine
from headwater.runtime import failpoints
from headwater.storage import log

PAID = "bronze.paid"
BRONZE = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/paid.py": '''"""Payments, as their files come."""
import headwater as hw
paid = hw.files("landing/**/*.json*")
''',
}
BELOW = {
    "silver/payments.py": """import headwater as hw
from pyspark.sql import functions as F
@hw.table(source="bronze.paid", decode=hw.json("n BIGINT, at BIGINT"))
def payments(paid):
    '''One row per payment.'''
    return paid.withColumn("event_time", F.timestamp_seconds("at"))
""",
    "gold/counts.sql": """CREATE STREAMING TABLE gold.counts TBLPROPERTIES ('headwater.emit' = 'final') AS
        SELECT window.start AS since, count(*) AS payments, sum(n) AS total
        FROM STREAM silver.payments WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
        GROUP BY window(event_time, '1 minute')""",
}


@pytest.fixture
def case(tmp_path: Path, interpreted: SparkSession) -> Landed:
    return Landed(tmp_path / "project", interpreted, BRONZE)


def bound(case: Landed, rows: int, **more: str) -> None:
    """Let a batch have so many rows."""
    case.put(
        "bronze/paid.py", BRONZE["bronze/paid.py"].replace('*")', f'*", max_rows_per_batch={rows})').encode()
    )


def test_each_file_is_taken_once_in_the_order_of_writing(case: Landed) -> None:
    case.land("b.json", 1, 2)
    case.land("a.json.gz", 3)
    case.land("deep/er/c.json", 4, 5)
    case.drain(PAID)
    assert case.numbers(PAID) == [1, 2, 3, 4, 5]
    case.drain(PAID)
    case.land("z.json", 6)
    os.utime(case.land("old.json", 7), (EPOCH - 999,) * 2)  # late, as files from elsewhere are
    case.drain(PAID)
    assert case.numbers(PAID) == [1, 2, 3, 4, 5, 7, 6]
    assert set(case.outcomes(PAID).values()) == {"taken"}

    row = case.found(PAID)[2]
    assert row["value"] == b'{"n": 3, "at": %d}' % (EPOCH + 3) and row["key"] is None
    assert [row[name] for name in ("cluster", "topic", "partition", "offset")] == ["files", PAID, 0, 2]
    assert [row["timestamp"]] == times(2)
    headers = {header["key"]: header["value"].decode() for header in row["headers"]}
    size = (case.root / "landing/a.json.gz").stat().st_size
    assert headers == {
        "file.path": "landing/a.json.gz",
        "file.modified": times(2)[0].isoformat().replace("+00:00", "Z"),
        "file.size": str(size),
    }
    place = case.lake.place(PAID)
    mine = log.flows(place.path)[PAID]
    assert mine["consumed"] == {f"files:{PAID}": {"0": 7}} and mine["newest"] == (EPOCH + 4) * 1000
    assert log.head(place.path) == 2  # nothing new, no commit


def test_files_that_are_being_written_are_left_alone(case: Landed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_a.json", ".b.json", "_half/c.json", ".half/d.json", "e.json_", "f.txt"):
        case.land(name, 1)
    case.put("landing/empty.json", b"")
    case.land("good.json", 2)
    case.land("grows.json", 3)
    real = Folder.unchanged

    def unchanged(folder: Folder, file: File) -> bool:
        if file.path.endswith("grows.json"):
            case.land("grows.json", 3, 4)  # while it is read
        return real(folder, file)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "unchanged", unchanged)
        case.drain(PAID)
    assert case.numbers(PAID) == [1, 2]  # e.json_ is none of these
    case.drain(PAID)
    assert case.numbers(PAID) == [1, 2, 3, 4]
    (case.root / "landing/_half").rename(case.root / "landing/whole")
    case.drain(PAID)
    assert case.numbers(PAID) == [1, 2, 3, 4, 1]


def test_a_pattern_names_what_a_shell_would(tmp_path: Path) -> None:
    for name in ("_in/a/x.json", "_in/a/_y/z.json", "_in/b.json", ".hidden/c.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    names = lambda pattern: [file.path for file in Folder(tmp_path, pattern).find()]  # noqa: E731
    assert sorted(names("_in/**/*.json")) == [
        "_in/a/x.json",
        "_in/b.json",
    ]  # what it names itself may begin so
    assert names("_in/?.json") == ["_in/b.json"] and names(".hidden/c.json") == [".hidden/c.json"]
    assert names("*/c.json") == [] and names("nowhere/*") == []
    assert names(f"{tmp_path}/_in/b*") == [f"{tmp_path}/_in/b.json"]
    (tmp_path / "in/2024-01/2024-01-05").mkdir(parents=True)
    (tmp_path / "in/2024-01/2024-01-05/x.json").write_text("{}")
    assert names("in/**/2024*/**/*.json") == ["in/2024-01/2024-01-05/x.json"]  # which `glob` has twice
    assert names("in/**") == ["in/2024-01/2024-01-05/x.json"]


def test_batches_are_bounded_and_a_huge_file_is_taken_in_parts(case: Landed) -> None:
    case.land("a.json.gz", *range(25))
    case.land("b.json", *range(25, 28))
    case.land("c.json", *range(28, 40))
    bound(case, 10)
    context = case.drain(PAID)
    assert [batch.rows_in for batch in context.board.flows[PAID].recent] == [10, 10, 10, 10]
    assert case.numbers(PAID) == list(range(40))
    lines = Ledger.of(case.lake, PAID)
    assert {Path(path).name: found.records for path, found in lines.files.items()} == {
        "a.json.gz": 25,
        "b.json": 3,
        "c.json": 12,
    }


def test_parts_go_on_where_they_were_in_another_process(case: Landed) -> None:
    bound(case, 7)
    case.land("a.json.gz", *range(30))
    case.put("landing/b.json", b"".join(b'{"n": %d}\n' % n for n in range(30, 50)))
    steps = 0
    while True:  # a flow of its own for each batch
        flow: Any = flow_of(case.begun(), PAID)
        flow._intake.recover()
        flow._intake.look(flow._source, flow._files.format, 0)
        if flow._intake.step() is None:
            break
        steps += 1
    assert steps == 8 and case.numbers(PAID) == list(range(50))


class Crash(BaseException):
    """The process ends here."""


def crashed(case: Landed, monkeypatch: pytest.MonkeyPatch, at: int) -> list[str]:
    """Run until the n-th step from here; the steps that were reached."""
    steps: list[str] = []

    def reach(step: str, flow: str) -> None:
        steps.append(step)
        if len(steps) == at:
            raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", reach)
        try:
            case.drain(PAID)
        except Crash:
            assert len(steps) == at
    return steps


def test_a_crash_at_any_step_loses_and_doubles_nothing(case: Landed, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    bound(case, 10)
    sent = 0
    case.land("first.json", 0)
    sent += 1
    every = ["pinned", "built", "staged", "committing", "committing", "committed", "sealed"]
    assert crashed(case, monkeypatch, 0) == every
    for at in [*range(1, len(every) + 1), *(draw.randint(1, 20) for _ in range(8))]:
        for count in (draw.randint(1, 25), 3):
            case.land(f"{sent:04d}.json{draw.choice(['', '.gz'])}", *range(sent, sent + count))
            sent += count
        crashed(case, monkeypatch, at)
        if draw.random() < 0.3:
            case.put("landing/damaged.json.gz", draw.randbytes(20))
    case.drain(PAID)
    assert case.numbers(PAID) == list(range(sent))
    assert {name for name, found in case.outcomes(PAID).items() if found != "taken"} <= {"damaged.json.gz"}


def test_a_file_that_can_not_be_read_does_not_stop_the_others(case: Landed) -> None:
    case.land("a.json", 1)
    broken = case.land("b.json.gz", *range(2, 2000))
    whole = broken.read_bytes()
    case.put("landing/b.json.gz", whole[:-20])
    case.put("landing/p.json.gz", b"no gzip at all")
    case.land("c.json", 2000)
    case.drain(PAID)
    assert case.numbers(PAID) == [1, 2000]
    assert case.outcomes(PAID) == {
        "a.json": "taken", "b.json.gz": "unreadable", "p.json.gz": "unreadable", "c.json": "taken",
    }  # fmt: skip
    said = case.notices
    assert (
        "bronze.paid: landing/b.json.gz: OSError: Truncated compressed stream; see bronze.paid__files" in said
    )
    head = log.head(case.lake.place(PAID).path)
    case.drain(PAID)  # tries them again, and has nothing new to say
    assert log.head(case.lake.place(PAID).path) == head and case.notices == said
    standing = json.loads(shown(case, "status", "--json"))[0]
    assert (standing["unread"], standing["amiss"]) == (0, 2)
    assert "files amiss" in shown(case, "status") and "FROM bronze.paid__files" in shown(case, "status")
    text = "SELECT path FROM bronze.paid__files WHERE outcome = 'unreadable' ORDER BY 1"
    assert query.run(text, project=case.root).rows == [("landing/b.json.gz",), ("landing/p.json.gz",)]

    case.put("landing/b.json.gz", whole)  # mended
    standing = json.loads(shown(case, "status", "--json"))[0]
    assert (standing["unread"], standing["amiss"]) == (1, 2)
    case.drain(PAID)
    assert sorted(case.numbers(PAID)) == list(range(1, 2001))
    assert json.loads(shown(case, "status", "--json"))[0]["amiss"] == 1


def test_a_file_whose_name_is_no_text_does_not_stop_the_others(case: Landed) -> None:
    case.land("a.json", 1)
    case.land("b.json", 2)
    named = os.path.join(os.fsencode(case.root), b"landing", b"caf\xe9.json")
    os.rename(case.root / "landing/a.json", named)
    case.drain(PAID)
    assert case.numbers(PAID) == [2]
    assert case.outcomes(PAID) == {"caf\\xe9.json": "unreadable", "b.json": "taken"}
    assert r"landing/caf\xe9.json: OSError: its name is not UTF-8; rename it" in case.notices
    os.rename(named, case.root / "landing/a.json")
    case.drain(PAID)
    assert sorted(case.numbers(PAID)) == [1, 2]


def test_a_name_that_can_not_be_looked_at_does_not_stop_the_others(case: Landed) -> None:
    case.land("b.json", 2)
    (case.root / "landing/a.json").symlink_to("a.json")
    case.drain(PAID)
    assert case.numbers(PAID) == [2]
    assert case.outcomes(PAID) == {"a.json": "unreadable", "b.json": "taken"}
    assert "landing/a.json: " in case.notices and "symbolic links" in case.notices
    (case.root / "landing/a.json").unlink()
    case.land("a.json", 1)
    case.drain(PAID)
    assert case.numbers(PAID) == [2, 1]


def test_a_delta_table_that_is_rewritten_feeds_nothing_more(case: Landed) -> None:
    case.put("bronze/paid.py", b'import headwater as hw\npaid = hw.files("old", format="parquet")\n')
    for first in (0, 10):
        rows = pa.table({"n": list(range(first, first + 10)), "at": [EPOCH] * 10})
        write_deltalake(case.root / "old", rows, mode="append")
        case.drain(PAID)
        assert case.numbers(PAID) == list(range(first + 10))
    DeltaTable(case.root / "old").optimize.compact()
    with raises_code("ADOPTED_TABLE_REWRITTEN", match="was rewritten after 2 of its files were taken"):
        case.drain(PAID)
    assert case.numbers(PAID) == list(range(20))


@pytest.mark.parametrize(
    "spelled", ["./landing/*.json", "landing/../landing//*.json", "{root}/landing/*.json"]
)
def test_a_file_is_one_however_the_pattern_spells_it(case: Landed, spelled: str) -> None:
    spelled = spelled.format(root=case.root)
    for number, pattern in enumerate(("landing/*.json", spelled, "landing/*.json")):
        case.put("bronze/paid.py", f'import headwater as hw\npaid = hw.files("{pattern}")\n'.encode())
        case.land(f"{number}.json", number)
        assert json.loads(shown(case, "status", "--json"))[0]["unread"] == 1
        case.drain(PAID)
        assert sorted(case.numbers(PAID)) == list(range(number + 1))


def test_a_file_that_was_taken_under_another_spelling_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text("{}")
    whole = str(tmp_path / "in/a.json")
    for pattern in ("in/*.json", "./in/*.json", f"{tmp_path}/in/*.json"):
        for called in ("in/a.json", "./in/a.json", whole):
            (found,) = Folder(tmp_path, pattern).find(taken={called: 1})
            assert found.path == called
    assert [file.path for file in Folder(tmp_path, "./in/*.json").find()] == ["in/a.json"]


def test_a_delta_table_is_one_however_its_folder_is_spelled(case: Landed) -> None:
    for first, pattern in ((0, "old"), (10, "./old/"), (20, f"{case.root}/old")):
        case.put(
            "bronze/paid.py",
            f'import headwater as hw\npaid = hw.files("{pattern}", format="parquet")'.encode(),
        )
        rows = pa.table({"n": list(range(first, first + 10)), "at": [EPOCH] * 10})
        write_deltalake(case.root / "old", rows, mode="append")
        case.drain(PAID)
        assert sorted(case.numbers(PAID)) == list(range(first + 10))
    DeltaTable(case.root / "old").optimize.compact()
    case.put("bronze/paid.py", b'import headwater as hw\npaid = hw.files("old", format="parquet")\n')
    with raises_code("ADOPTED_TABLE_REWRITTEN", match="after 3 of its files"):
        case.drain(PAID)


def test_a_delta_table_that_lacks_a_file_feeds_nothing(case: Landed) -> None:
    case.put("bronze/paid.py", b'import headwater as hw\npaid = hw.files("old", format="parquet")\n')
    for number in range(3):
        write_deltalake(case.root / "old", pa.table({"n": [number], "at": [EPOCH]}), mode="append")
    lost = sorted((case.root / "old").glob("*.parquet"))[1]
    lost.rename(case.root / "aside")
    with raises_code("ADOPTED_TABLE_UNREADABLE", file=case.root / "old", match="1 of the files in its log"):
        case.drain(PAID)
    assert case.found(PAID) == []
    (case.root / "aside").rename(lost)
    case.drain(PAID)
    assert sorted(case.numbers(PAID)) == [0, 1, 2]


def test_a_delta_table_that_is_being_made_or_can_not_be_read_is_told_and_left_as_it_is(case: Landed) -> None:
    case.put("bronze/paid.py", b'import headwater as hw\npaid = hw.files("old", format="parquet")\n')
    entries = case.root / "old/_delta_log"
    entries.mkdir(parents=True)
    case.drain(PAID)
    assert case.found(PAID) == []
    for number in range(2):
        write_deltalake(case.root / "old", pa.table({"n": [number], "at": [EPOCH]}), mode="append")
    case.drain(PAID)
    assert case.numbers(PAID) == [0, 1]
    checkpoint, hint = entries / f"{1:020}.checkpoint.parquet", entries / "_last_checkpoint"
    checkpoint.write_bytes(b"no Parquet")
    hint.write_text('{"version": 1, "size": 1}')
    with raises_code("ADOPTED_TABLE_UNREADABLE", file=case.root / "old", match="old can't be read: "):
        case.drain(PAID)
    assert json.loads(shown(case, "status", "--json"))[0]["unread"] is None
    assert checkpoint.exists() and hint.exists()
    checkpoint.unlink()
    hint.unlink()
    (entries / f"{1:020}.json").write_bytes(b"")  # as a disk leaves it that lost its power
    with raises_code("ADOPTED_TABLE_UNREADABLE", file=case.root / "old", match="it is empty"):
        case.drain(PAID)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_of_a_file_that_is_damaged_at_its_end_nothing_is_taken(case: Landed, form: str) -> None:
    case.put(
        "bronze/paid.py",
        f"""import headwater as hw
paid = hw.files("landing/*", format="{form}", max_rows_per_batch=10)""".encode(),
    )
    if form == "json":
        path = case.land("a.json.gz", *range(100_000))
    else:
        path = case.put("landing/a.parquet", parquet(list(range(100))))
    whole = path.read_bytes()
    case.put(f"landing/{path.name}", whole[:-30])
    case.drain(PAID)
    assert case.found(PAID) == [] and case.outcomes(PAID) == {path.name: "unreadable"}
    if form == "parquet":
        case.put(f"landing/{path.name}", whole)
        case.drain(PAID)
        assert case.numbers(PAID) == list(range(100))


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.date32(), pa.date64(), pa.string()])
def test_nor_of_one_with_a_value_that_has_no_form(case: Landed, kind: pa.DataType) -> None:
    case.put(
        "bronze/paid.py",
        b"""import headwater as hw
paid = hw.files("landing/*", format="parquet", max_rows_per_batch=10)""",
    )
    numbers = pa.array(range(30))
    if pa.types.is_string(kind):
        texts = [b"x"] * 25 + [b"\xff"] + [b"x"] * 4
        odd = pa.array(texts, pa.binary()).view(pa.string())
    else:
        width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        last = (
            2**62 // 86_400_000 * 86_400_000 if pa.types.is_date64(kind) else 2 ** (width.bit_width - 1) - 1
        )
        odd = pa.array([0] * 25 + [last] + [0] * 4, width).view(kind)
    (case.root / "landing").mkdir()
    pq.write_table(pa.table({"n": numbers, "odd": odd}), case.root / "landing/a.parquet")
    case.drain(PAID)
    assert case.found(PAID) == [] and case.outcomes(PAID) == {"a.parquet": "unreadable"}
    case.put("landing/a.parquet", parquet(list(range(30))))
    case.drain(PAID)
    assert case.numbers(PAID) == list(range(30))


def test_a_file_that_changes_after_it_was_taken_is_not_read_again(case: Landed) -> None:
    bound(case, 5)
    case.land("a.json", 1, 2)
    case.land("b.json", *range(3, 20))
    flow: Any = flow_of(case.begun(), PAID)
    flow._intake.recover()
    flow._intake.look(flow._source, flow._files.format, 0)
    flow._step()
    assert case.outcomes(PAID) == {"a.json": "taken", "b.json": "part"}
    case.land("a.json", 1, 2, 99)
    case.land("b.json", 3, 99)
    (case.root / "landing/gone.json").write_text("")
    case.drain(PAID)
    assert case.numbers(PAID) == [1, 2, 3, 4, 5]
    assert case.outcomes(PAID) == {"a.json": "changed", "b.json": "changed"}
    said = case.notices
    assert "a.json: changed after it was taken" in said
    assert "b.json: changed after 3 of its records were taken" in said
    case.drain(PAID)
    assert case.notices == said  # once
    case.land("again.json", 99)  # under a name of its own it is taken
    case.drain(PAID)
    assert case.numbers(PAID)[-1] == 99


def test_a_file_that_goes_before_its_end(case: Landed) -> None:
    bound(case, 5)
    path = case.land("b.json", *range(9))
    flow: Any = flow_of(case.begun(), PAID)
    flow._intake.recover()
    flow._intake.look(flow._source, flow._files.format, 0)
    flow._step()
    path.unlink()
    case.drain(PAID)
    assert "b.json: gone after 5 of its records were taken" in case.notices
    case.land("a.json", 9)
    (case.root / "landing/a.json").rename(case.root / "archived")
    case.drain(PAID)
    assert case.numbers(PAID) == list(range(5))


def test_files_that_arrive_while_the_flow_is_at_work(case: Landed) -> None:
    context = case.begun(once=False)
    flow = flow_of(context, PAID)
    worker = threading.Thread(target=flow.run)
    worker.start()
    try:
        for n in range(40):
            case.land(f"{n}.json", *range(n * 50, n * 50 + 50))
        deadline = time.monotonic() + 300
        while context.board.flows.get(PAID) is None or context.board.flows[PAID].rows_in < 2000:
            assert time.monotonic() < deadline and worker.is_alive()
            time.sleep(0.02)
    finally:
        context.stop.set()
        worker.join()
    assert sorted(case.numbers(PAID)) == list(range(2000))


def test_a_table_without_its_ledger_is_not_fed_again(case: Landed) -> None:
    case.land("a.json", 1)
    case.drain(PAID)
    ledger = case.lake.place(f"{PAID}__files").path.parent
    aside = ledger.with_name("aside")
    ledger.rename(aside)
    with raises_code(
        "LEDGER_DISAGREES",
        table="bronze.paid",
        match=r"bronze.paid__files knows of 0 batches, the table of 1, .* remove ",
    ):
        case.drain(PAID)
    shutil.rmtree(ledger, ignore_errors=True)
    aside.rename(ledger)
    case.drain(PAID)
    shutil.rmtree(case.lake.place(PAID).path.parent)
    with raises_code("LEDGER_DISAGREES", match="knows of 1 batches, the table of 0"):
        case.drain(PAID)
    shutil.rmtree(ledger)  # both: anew
    case.drain(PAID)
    assert case.numbers(PAID) == [1]


def shown(case: Landed, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--project", str(case.root)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_all_below_works_as_it_does_below_a_topic(tmp_path: Path, interpreted: SparkSession) -> None:
    case = Landed(tmp_path / "project", interpreted, {**BRONZE, **BELOW})
    tables = (PAID, "silver.payments", "gold.counts")
    case.land("a.json", *range(0, 150, 10))
    case.land("b.json", 60, n="many")  # its number is none
    case.land("c.json.gz", 200, 5)
    case.drain(*tables)
    sources = [row["_source"] for row in case.found("silver.payments")]
    assert sorted(source["offset"] for source in sources) == [*range(15), 16, 17]
    assert {(s["cluster"], s["topic"], s["partition"]) for s in sources} == {("files", PAID, 0)}
    final = [(0, 6, 150), (60, 6, 510), (120, 3, 390)]
    since = lambda row: int(row["since"].timestamp()) - EPOCH  # noqa: E731
    windows = lambda: sorted((since(r), r["payments"], r["total"]) for r in case.found("gold.counts"))  # noqa: E731
    assert windows() == final
    assert [row["n"] for row in case.found("gold.counts_late")] == [5]

    lists = {line["name"]: line for line in json.loads(shown(case, "ls", "--json"))["tables"]}
    assert (lists[PAID]["kind"], lists[PAID]["source"]) == ("files", "files:landing/**/*.json*")
    assert lists[f"{PAID}__files"]["kind"] == "ledger"
    said = shown(case, "describe", PAID)
    assert "files:landing/**/*.json*" in said and f"consumed files:{PAID} to offsets 0:18" in said
    assert "and what came of each" in shown(case, "describe", f"{PAID}__files")
    assert shown(case, "graph").startswith(f"files:landing/**/*.json*\n└─ {PAID}\n   └─ silver.payments")
    assert {
        line["table"]: line["verdict"]["effect"] for line in json.loads(shown(case, "plan", "--json"))
    } == (dict.fromkeys(tables, "unchanged"))

    held = Quarantine(case.lake, "silver.payments")
    assert held.summary().open == 1
    assert resolve(case.definitions, "silver.payments", "discard", why="no number").discarded == 1
    before = case.found("silver.payments"), windows()
    done = case.rebuild("silver.payments")
    assert done.swapped and (case.found("silver.payments"), windows()) == before
    mended = BELOW["silver/payments.py"].replace("n BIGINT", "n STRING")
    mended = mended.replace("return paid", "return paid.withColumn('n', F.lit(-1).cast('bigint'))")
    case.put("silver/payments.py", mended.encode())
    assert resolve(case.definitions, "silver.payments", "replay").replayed == 1
    (back,) = [row for row in case.found("silver.payments") if row["n"] == -1]
    assert back["_source"] == {"cluster": "files", "topic": PAID, "partition": 0, "offset": 15}
    with raises_code("TABLE_IS_HISTORY", table="bronze.paid"):
        rebuilding.rebuild(case.definitions, [PAID])


def test_what_a_definition_may_say(case: Landed) -> None:
    case.drain(PAID)
    assert case.notices == "headwater: bronze.paid: there is no folder landing yet; it is waited for\n"
    case.put("bronze/paid.py", b'import headwater as hw\npaid = hw.files("landing/*", format="xml")')
    with raises_code(
        "PROPERTY_INVALID",
        table="bronze.paid",
        file="paid.py",
        match=r"paid\.py:2: bronze\.paid: format = 'xml'; known: json, text, csv, ",
    ):
        load_project(case.root)
    case.put("bronze/paid.py", b'import headwater as hw\npaid = hw.files("in/*", format="csv", trigger="5s")')
    (line,) = json.loads(shown(case, "plan", "--json"))
    assert line["verdict"]["effect"] == "resumes" and "files and format changed" in line["verdict"]["why"][0]
    case.put("bronze/paid.py", b'import headwater as hw\npaid = hw.topic("payments")')
    done = CliRunner().invoke(app, ["plan", "--project", str(case.root), "--json"])
    assert done.exit_code == 2 and "lost; give the topic payments a table of its own" in done.stdout
    case.put("conf/local.yaml", b"cluster: files\n")
    with raises_code("CONF_INVALID", match="rows of files have the cluster 'files'"):
        load_project(case.root)


HEADWATER = str(Path(sys.executable).parent / "headwater")


@pytest.mark.torture
def test_processes_that_are_killed_take_each_file_once(case: Landed) -> None:
    """No broker is started for it: a project without topics needs none."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    bound(case, 300)
    sent = 0

    def run(fail: str = "") -> subprocess.CompletedProcess[str]:
        command = [HEADWATER, "run", "--once", "--project", str(case.root)]
        environment = {**os.environ, "HEADWATER_FAIL_POINT": fail}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    for step in failpoints.STEPS:
        for _ in range(3):
            count = draw.randint(301, 1000)
            case.land(f"{sent}.json.gz", *range(sent, sent + count))
            sent += count
        killed = run(f"{step}:{PAID}:1=python")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run()
    assert done.returncode == 0, done.stderr
    assert case.numbers(PAID) == list(range(sent))
    assert not (case.root / ".headwater" / "kafka").exists()


@pytest.mark.parametrize("name", ["la*ke", "lake[1]", "{lake}", "lake%20"])
def test_a_lake_whose_path_stands_for_others_is_refused(case: Landed, name: str) -> None:
    case.put("conf/local.yaml", f"kafka: embedded\nlake: '{name}'\n".encode())
    with raises_code("CONF_INVALID", match="takes for a pattern", file="conf/local.yaml"):
        load_project(case.root)
