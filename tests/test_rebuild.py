"""Tables are built anew beside the live ones and swapped in one commit, whatever is killed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater import analysis, query
from headwater import project as projects
from headwater import rebuild as rebuilding
from headwater.analysis import BRONZE
from headwater.errors import FlowError, ProjectError
from headwater.flows.context import Context, Moved
from headwater.flows.declared import flow_of
from headwater.lake import Lake
from headwater.plan import accept
from headwater.progress import Board
from headwater.rebuild import Rebuilt, abort, clean, rebuild
from headwater.target import Identity, Target

RAW, VISITS, COUNTS, TOP, ENDED = "bronze.raw", "silver.visits", "gold.counts", "gold.top", "gold.ended"
EPOCH = 1_760_000_400
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/visits.py": '''import headwater as hw
from pyspark.sql import functions as F
@hw.table(source="bronze.raw", decode=hw.json("user STRING, n BIGINT, at BIGINT"))
def visits(raw):
    """One row per visit."""
    return raw.where("n >= 0").withColumn("event_time", F.timestamp_seconds("at"))
''',
    "gold/counts.sql": """CREATE STREAMING TABLE gold.counts AS
        SELECT user, count(*) AS visits, sum(n) AS total FROM STREAM silver.visits GROUP BY user""",
    "gold/top.sql": """CREATE MATERIALIZED VIEW gold.top TBLPROPERTIES ('headwater.keys' = 'user') AS
        SELECT user, total, rank() OVER (ORDER BY total DESC, user) AS place FROM gold.counts""",
    "gold/ended.sql": """CREATE STREAMING TABLE gold.ended TBLPROPERTIES ('headwater.emit' = 'final') AS
        SELECT window.start AS since, user, count(*) AS visits
        FROM STREAM silver.visits WATERMARK event_time DELAY OF INTERVAL 10 SECONDS
        GROUP BY window(event_time, '1 minute'), user""",
}
STEPS = ("planned", "committed", "rebuilt")
DERIVED = (VISITS, COUNTS, TOP, ENDED)


class Case:
    """A project whose bronze table the test writes."""

    def __init__(self, root: Path, spark: SparkSession, **files: str) -> None:
        self.root, self.spark = root, spark
        self.write(**{**FILES, **files})
        self.sent = 0
        project = self.project()
        raw = analysis.analyse(spark, project)[RAW]
        accept(project, self.lake, RAW, raw)
        self.columns = raw.stored
        self.bronze = Target(self.lake.create(RAW, self.columns, properties={}))

    @property
    def lake(self) -> Lake:
        return Lake(self.project().conf.lake)

    def project(self) -> projects.Project:
        return projects.load(self.root)

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        self.write(**{name: text.replace(old, new)})

    def send(self, draw: random.Random, count: int = 40) -> None:
        """One commit of bronze: a few of its records are malformed, and a few late."""
        rows = []
        for _ in range(count):
            late = draw.choice([0, 0, 0, 0, 300])
            fields = {"user": draw.choice("abc"), "n": draw.randrange(-2, 9), "at": EPOCH + self.sent - late}
            value = b"{" if draw.random() < 0.1 else json.dumps(fields).encode()
            at = datetime.now(UTC)
            rows.append(
                {
                    **dict.fromkeys(BRONZE.fieldNames()),
                    **{
                        "value": value,
                        "topic": "raw",
                        "partition": 0,
                        "offset": self.sent,
                        "cluster": "main",
                    },
                    **{"timestamp": at, "ingested_at": at},
                }
            )
            self.sent += 1
        identity = Identity(RAW, 1, self.bronze.last(RAW) + 1, {"raw": {"0": self.sent}})
        files = self.bronze.write(pa.Table.from_pylist(rows, self.columns), f"{identity.sequence:012d}")
        self.bronze.append(files, identity)

    def context(self) -> Context:
        project = self.project()
        tables = analysis.analyse(self.spark, project)
        board = Board(notices=StringIO())
        return Context(project, tables, self.spark, self.lake, "", True, "earliest", None, board)

    def drain(self, *names: str) -> None:
        """Run the derived tables until nothing is left."""
        context = self.context()
        context.heads.end(RAW)
        for name in names or DERIVED:
            flow_of(context, name).run()
            context.heads.end(name)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        found = query.run(f"SELECT * FROM {table}", project=self.root)
        keep = [at for at, name in enumerate(found.columns) if name not in ("quarantined_at",)]
        return sorted((tuple(row[at] for at in keep) for row in found.rows), key=repr)

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        names = [*DERIVED, "quarantine.silver_visits", f"{ENDED}_late", f"{ENDED}__state"]
        return {name: self.rows(name) for name in names if name in self.lake.places()}

    def rebuild(self, *tables: str, **options: Any) -> Rebuilt:
        return rebuild(self.project(), tables, notices=Board(notices=StringIO()), **options)


@pytest.fixture
def case(tmp_path: Path, interpreted: SparkSession) -> Case:
    case = Case(tmp_path / "project", interpreted)
    draw = random.Random(3)
    for _ in range(4):
        case.send(draw)
    case.drain()
    return case


def of_new_lake(case: Case) -> dict[str, list[tuple[Any, ...]]]:
    """What the definitions give that have never been others."""
    live = case.root / ".headwater" / "lake"
    aside = live.with_name("aside")
    live.rename(aside)
    try:
        lake = Lake(live)
        place = lake.create(RAW, case.columns, properties={})
        for path in (aside / "bronze" / "raw" / "g0001").iterdir():
            if path.is_dir() and path.name != "_delta_log":
                (place.path / path.name).symlink_to(path)
        target = Target(place)
        files = [str(Path(*Path(file).parts[-2:])) for file in Target(Lake(aside).places()[RAW]).files()]
        target.append(files, Identity(RAW, 1, 0, {"raw": {"0": case.sent}}))
        case.drain()
        return case.everything()
    finally:
        shutil.rmtree(live)
        aside.rename(live)


def test_unchanged_definitions_give_the_same_rows(case: Case) -> None:
    before = case.everything()
    versions = {name: place.generation for name, place in case.lake.places().items()}
    assert set(versions.values()) == {1}
    done = case.rebuild(VISITS, verify=True)
    assert done.swapped and not any(done.differences), done.differences
    beside = {"quarantine.silver_visits", f"{ENDED}_late", f"{ENDED}__state"}
    assert {one.table for one in done.differences} == {*DERIVED, *beside}
    assert {one.table: one.before for one in done.differences} == {name: len(before[name]) for name in before}
    assert case.everything() == before
    places = case.lake.places()
    assert {name: place.generation for name, place in places.items()} == {
        **dict.fromkeys(places, 2),
        RAW: 1,
    }
    case.send(random.Random(4))
    case.drain()
    assert case.everything() == of_new_lake(case)


def test_changed_definitions_take_the_place_of_all_below_at_once(case: Case) -> None:
    case.change("silver/visits.py", "n >= 0", "n >= 3")
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    case.change("gold/ended.sql", "'1 minute'", "'2 minutes'")
    before = case.everything()
    done = case.rebuild(VISITS, verify=True)
    assert not done.swapped and case.everything() == before  # for a person to look at
    assert {one.table for one in done.differences if one} == {*DERIVED, f"{ENDED}_late", f"{ENDED}__state"}
    assert case.rebuild(VISITS).swapped
    assert case.everything() == of_new_lake(case) != before
    case.send(random.Random(5))
    case.drain()
    assert case.everything() == of_new_lake(case)


def test_generations_that_are_not_live_are_removed_on_demand(case: Case) -> None:
    case.rebuild(COUNTS)
    before = case.everything()
    folders = lambda: sorted(path.name for path in case.lake.at(COUNTS, 1).parent.iterdir())  # noqa: E731
    assert folders() == ["g0001", "g0002"]
    assert not case.rebuild(COUNTS, swap=False).swapped
    assert clean(case.project()) == 2  # of gold.counts and gold.top
    assert folders() == ["g0002", "g0003"]
    assert case.everything() == before
    assert case.rebuild(COUNTS).swapped
    assert case.everything() == before


def test_only_what_is_named_and_below_is_rebuilt(case: Case) -> None:
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    assert set(case.rebuild(COUNTS).tables) == {COUNTS, TOP}
    generations = {name: place.generation for name, place in case.lake.places().items()}
    assert generations[COUNTS] == generations[TOP] == 2
    assert generations[VISITS] == generations[ENDED] == 1
    assert case.everything() == of_new_lake(case)


@pytest.mark.parametrize(
    "at", ["built", "swapped", *(pytest.param(at, marks=pytest.mark.torture) for at in STEPS)]
)
def test_a_rebuild_that_broke_off_goes_on_or_is_aborted(
    case: Case, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    before, want = case.everything(), of_new_lake(case)

    def reach(step: str, flow: str) -> None:
        if step == at and flow in ("rebuild", COUNTS):
            raise SystemExit

    def broken() -> None:
        with monkeypatch.context() as patched:
            patched.setattr("headwater.failpoints.reach", _fails(reach))
            with pytest.raises((SystemExit, FlowError)):
                case.rebuild(VISITS)

    broken()
    if at != "swapped":
        assert case.everything() == before
        assert set(abort(case.project())) == set(DERIVED)
        assert case.everything() == before
        assert not list((case.root / ".headwater/lake").glob("*/*/g0002"))
        broken()
    assert case.rebuild(VISITS).swapped
    assert case.everything() == want


def _fails(reach: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """An error in a flow's thread, and a kill anywhere else: what the process sees of either."""

    def reached(step: str, flow: str) -> None:
        try:
            reach(step, flow)
        except SystemExit:
            if flow == "rebuild":
                raise
            raise FlowError("broken off") from None

    return reached


def test_the_live_flow_gives_way_to_the_new_generation(case: Case) -> None:
    context = case.context()
    flow: Any = flow_of(context, COUNTS)
    context.check(COUNTS)
    case.rebuild(VISITS)
    with pytest.raises(Moved):
        context.check(COUNTS)
    case.send(random.Random(6))
    case.drain(VISITS)
    assert not flow.step()  # its input is another one now
    again: Any = flow_of(context, COUNTS)
    assert again.step()
    assert case.rows(COUNTS) == of_new_lake(case)[COUNTS]


def test_what_can_not_be_rebuilt_is_said(case: Case) -> None:
    with pytest.raises(ProjectError, match=r"bronze\.raw is the history that others are rebuilt from; name"):
        case.rebuild(RAW)
    with pytest.raises(ProjectError, match=r"unknown table 'gold\.nope'"):
        case.rebuild("gold.nope")
    with pytest.raises(ProjectError, match="no rebuild is under way"):
        abort(case.project())
    assert not case.rebuild(COUNTS, swap=False).swapped
    with pytest.raises(ProjectError, match=r"a rebuild of gold\.counts, gold\.top is under way"):
        case.rebuild(VISITS)
    case.change("gold/counts.sql", "sum(n) AS total", "max(n) AS total")
    with pytest.raises(ProjectError, match="a rebuild with other definitions is under way"):
        case.rebuild(COUNTS)
    assert abort(case.project()) == [COUNTS, TOP]
    assert rebuilding.rebuild(case.project(), [COUNTS]).swapped
