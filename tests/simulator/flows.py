"""A small project, and its flows: those of the engine, whose builds are a few rows in memory, without Spark.

    the topic → bronze.r → silver.s (and its quarantine) → gold.g (and the late rows) → gold.c

A record is its offset. Some are bad in every try; of others it depends on the try what becomes of them, as no
build is sure to do the same twice. What must hold is that each is taken, once.
"""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import LongType, StructField, StructType

from headwater.common.progress import Board
from headwater.common.report import Account
from headwater.flows.changed import ChangedFlow
from headwater.flows.context import Context
from headwater.flows.derived import DerivedFlow
from headwater.flows.ranged import RangedFlow
from headwater.flows.replay import Replay, Resolution
from headwater.flows.turns import TableFlow
from headwater.planner.aggregate import Aggregate, Output
from headwater.project.conf import KeptFor, Maintenance
from headwater.project.definitions import Json, Limits, Table
from headwater.quality.quarantine import HELD
from headwater.quality.quarantine import RESOLVED as NOTED
from headwater.storage import stored
from headwater.storage.commit import Built, Committer
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.names import late_name, quarantine_name, replay_name, resolved_name
from headwater.storage.target import Target
from headwater.storage.wake import Heads

from .world import World

BRONZE, SILVER, GOLD, COPY = "bronze.r", "silver.s", "gold.g", "gold.c"
QUARANTINE, RESOLVED, LATE = quarantine_name(SILVER), resolved_name(SILVER), late_name(GOLD)
REPLAY = replay_name(SILVER)
TOPIC = "r"
NUMBERS = pa.schema([("offset", pa.int64()), ("k", pa.int64())])
ROWS = pa.schema([*NUMBERS, ("try", pa.int64())])
COUNTS = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("last", pa.int64())])
COLUMNS = {BRONZE: NUMBERS, SILVER: ROWS, GOLD: COUNTS, COPY: COUNTS}
KEYS = 3
_HELD = stored.schema(HELD)
BESIDE = {QUARANTINE: _HELD, LATE: ROWS, RESOLVED: NOTED}
AGGREGATE = Aggregate((Output("k", "key"), Output("n", "count"), Output("last", "max")), window="")


def is_bad_for_good(offset: int) -> bool:
    """Whether a record stays in the quarantine."""
    return offset % 7 == 2


def is_bad(offset: int, attempt: int) -> bool:
    """Whether a record goes to the quarantine, in one try."""
    return is_bad_for_good(offset) or (offset % 3 == 1 and attempt % 2 == 0)


def is_late(offset: int, attempt: int) -> bool:
    """Whether a row counts as late, in one try."""
    return offset % 11 == 3 and attempt % 2 == 0


@dataclass
class Project:
    """What flows and maintenance ask a project, and how the schedule wants it.

    Attributes:
        end: the offset after the topic's last record.
        chain: the tables that are derived, in order.
    """

    end: int
    chain: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    retention: str | None = None
    keep: str = "1 hour"
    checkpoint: int = 4
    digest: str = "d"
    lake: Path = Path()
    root: Path = Path("project")
    references: frozenset[str] = frozenset()
    sinks: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=lambda: {BRONZE: None})

    def __post_init__(self) -> None:
        above = dict(zip(self.chain, (BRONZE, *self.chain), strict=False))
        self.tables = {
            name: Table(
                name=name,
                sources=(source,),
                decode=Json("k BIGINT") if name == SILVER else None,
                file=Path("t.sql"),
                limits=self.limits,
            )
            for name, source in above.items()
        }
        tables = {BRONZE: KeptFor(retention=self.retention)} if self.retention else {}
        maintain = Maintenance(every=False, keep=self.keep, checkpoint=self.checkpoint, tables=tables)
        self.conf = SimpleNamespace(
            lake=self.lake, max_rows_per_batch=1000, max_bytes_per_batch=2**30, maintain=maintain
        )

    def names(self) -> list[str]:
        return [BRONZE, *self.chain]

    def streams(self, table: Table) -> tuple[str, ...]:
        """What a derived table follows."""
        return table.sources

    def definition(self, name: str) -> Table:
        """Of a derived table."""
        return self.tables[name]

    def analysed(self) -> dict[str, Any]:
        """{table → what is known of it}, as the flows ask."""
        kinds = {BRONZE: "raw", SILVER: "rows", GOLD: "aggregate", COPY: "changed rows"}
        return {
            name: SimpleNamespace(
                kind=kinds[name],
                stored=COLUMNS[name],
                columns=StructType([StructField(each, LongType()) for each in COLUMNS[name].names]),
                keys=("k",),
                gate=None,
                fingerprint="f",
                appended=name in (BRONZE, SILVER),
                ordered=True,
            )
            for name in self.names()
        }


class Applied:
    """A definition, of which no more is asked than what it reads."""

    def __init__(self, context: Context, table: Table) -> None:
        self.analysed = context.tables[table.name]
        self.stream = table.sources[0]
        self.columns = context.tables[self.stream].columns
        self.references = SimpleNamespace(pinnable=dict, check=lambda versions: None)
        self.lookups = None

    def answers(self, table: Any, clock: str) -> None:
        """It has no lookup."""


class Woken(Heads):
    """Heads of which a waiting flow looks again when others have had their turn."""

    def __init__(self, world: World, ended: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._world = world
        self._ended = set(ended)

    def wait(self, beat: int, tables: Collection[str]) -> None:
        self._world.sleep(self.POLL)


class Stop:
    """An event that nobody sets."""

    def __init__(self, world: World) -> None:
        self._world = world

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self._world.sleep(seconds)
        return False


class Run(Context):
    """A run, whose tables need no analysis."""

    def open(self, table: Table) -> Target:
        analysed = self.tables[table.name]
        properties = {} if analysed.appended else {"delta.enableChangeDataFeed": "true"}
        place = self.lake.create(table.name, analysed.stored, properties=properties)
        target = Target.shared(place)
        self.opened[table.name] = place.generation
        return target


def context_of(
    world: World, project: Project, lake: Any, ended: tuple[str, ...] = (), said: io.StringIO | None = None
) -> Run:
    """A run of the project on a lake, of which some tables get no more commits; what it says is `said`."""
    return Run(
        project,  # type: ignore[arg-type]
        project.analysed(),
        None,  # type: ignore[arg-type]
        lake,
        Board(None, said or io.StringIO()),
        heads=Woken(world, ended),
        stop=Stop(world),  # type: ignore[arg-type]
        now=world.now,
    )


class Tries:
    """Counts the builds of a schedule, so that none is like the one before."""

    def __init__(self) -> None:
        self._next = itertools.count()

    def __call__(self) -> int:
        return next(self._next)


tries = Tries()


class Source(TableFlow):
    """The topic → bronze; as the engine's own, it goes on where the newest commit ends."""

    def __init__(self, context: Run) -> None:
        self.name = BRONZE
        self._context = context
        self._inputs = []
        self._apart = 0.0
        self._end = cast(Project, context.project).end
        self._place = context.lake.create(BRONZE, NUMBERS, properties={})
        self._table = Target.shared(self._place)
        context.opened[BRONZE] = self._place.generation
        self.committer = Committer(self._table, IntentFile(context.lake.flow_folder(BRONZE)))

    def recover(self) -> None:
        """What was left half done is the next batch."""

    def step(self) -> bool:
        done = self._table.flows.get(BRONZE, {}).get("consumed", {}).get(TOPIC, {}).get("0", 0)
        if done >= self._end:
            return False
        attempt, sequence = tries(), self._table.last(BRONZE) + 1
        left = self.committer.unsealed()
        upto = min(self._end, done + 4 + attempt % 5)
        intent = Intent(
            flow=BRONZE,
            generation=self._place.generation,
            sequence=sequence,
            consumed={TOPIC: {"0": upto}},
            clock=left.clock if left is not None and left.sequence == sequence else self._context.clock(),
            fingerprint="f",
            topics={TOPIC: "id"},
        )
        self.committer.carry_out(intent, lambda pinned: self._built(pinned, done, upto))
        self._context.heads.announce()
        return True

    def _built(self, intent: Intent, begin: int, end: int) -> Built:
        offsets = list(range(begin, end))
        rows = pa.table([offsets, [at % KEYS for at in offsets]], schema=NUMBERS)
        files = self._table.write(rows, intent.batch)
        if len(rows) > 5:  # two files, in their order
            folder = files[0].partition("/")[0]
            for part, name in ((rows[:4], "part-00000.parquet"), (rows[4:], "part-00001.parquet")):
                pq.write_table(part, self._place.path / folder / name, store_schema=False)
            files = [f"{folder}/part-00000.parquet", f"{folder}/part-00001.parquet"]
        return Built({BRONZE: files}, account=Account(rows_in=len(rows), rows_out=len(rows)))


class Derived(DerivedFlow):
    """Bronze → silver, and what can't go there to the quarantine."""

    def _build(self, intent: Intent) -> Built:
        attempt = tries()
        rows = _read(intent.files, NUMBERS)
        bad = pa.array([is_bad(at, attempt) for at in rows["offset"].to_pylist()], pa.bool_())
        good = rows.filter(pc.invert(bad))
        files = self._table.write(good.append_column("try", pa.repeat(attempt, len(good))), intent.batch)
        self._same(intent, len(rows), intent.rows, "found again")
        rejects = rows.filter(bad)
        account = Account(rows_in=len(rows), rows_out=len(good), quarantined=len(rejects))
        if not len(rejects):
            return Built({self.name: files}, account=account)
        held = self.committer.target(QUARANTINE).write(_held(rejects, intent), intent.batch)
        return Built({QUARANTINE: held, self.name: files}, account=account)


class Replayed(Replay):
    """What comes back from the quarantine: each record as it is, but those that are bad for good."""

    def _in_table(self, quarantine: Any, request: Any) -> pa.Table:
        there = _read(self._table.files(), ROWS)["offset"].to_pylist()
        return pa.Table.from_pylist([_place(at) for at in there], _PLACES)

    def _replayed(
        self, rows: pa.Table, intent: Intent, answers: Any, done: Resolution
    ) -> tuple[pa.Table, pa.Table]:
        offsets = [at for at in rows["offset"].to_pylist() if not is_bad_for_good(at)]
        passing = rows.filter(pc.is_in(rows["offset"], pa.array(offsets, pa.int64())))
        became = Counter((*_place(at).values(),) for at in offsets)
        made = pa.table([offsets, [at % KEYS for at in offsets], [-1] * len(offsets)], schema=ROWS)
        done.replayed += len(offsets)
        return self._ledger(passing, became, intent, "replayed", None), made


class Counted(RangedFlow):
    """Silver → gold: how many rows each key has, and the greatest offset; late rows to a table beside."""

    def __init__(self, context: Run, table: Table) -> None:
        super().__init__(context, table)
        self.committer = Committer(
            self._table, self._intents, merges={self.name: _merge}, open_target=self._open_late
        )

    def _beside(self) -> list[str]:
        return [LATE]

    def _open_late(self, name: str) -> Target:
        return self._context.open_beside(self.name, name, ROWS, "late")

    def _build(self, intent: Intent) -> Built:
        attempt = tries()
        rows = _read(intent.files, ROWS)
        late = pa.array([is_late(at, attempt) for at in rows["offset"].to_pylist()], pa.bool_())
        counts = counted(rows.filter(pc.invert(late)))
        if not any(late.to_pylist()):
            return Built({self.name: counts})
        held = self.committer.target(LATE).write(rows.filter(late), intent.batch)
        return Built({LATE: held, self.name: counts})


class Followed(ChangedFlow):
    """Gold → its copy, by the change feed."""

    def _build(self, intent: Intent) -> Built:
        return Built({self.name: self._last(intent.files)})


def flow_of(context: Run, name: str) -> Any:
    """The flow of a table."""
    if name == BRONZE:
        return Source(context)
    kinds: dict[str, Callable[[Run, Table], Any]] = {SILVER: Derived, GOLD: Counted, COPY: Followed}
    return kinds[name](context, context.project.tables[name])


def counted(rows: pa.Table) -> pa.Table:
    """Of each key, how many rows and the greatest offset; columns: `COUNTS`."""
    found = rows.group_by("k").aggregate([("offset", "count"), ("offset", "max")])
    return found.select(["k", "offset_count", "offset_max"]).rename_columns(COUNTS.names).cast(COUNTS)


def _merge(target: Target, rows: pa.Table, identity: Identity) -> int:
    return target.merge(rows, AGGREGATE.keys, AGGREGATE.merged(rows.schema), identity)


def _read(files: list[str], columns: pa.Schema) -> pa.Table:
    return pa.concat_tables([columns.empty_table(), *(stored.read(file, columns) for file in files)])


def _place(offset: int) -> dict[str, Any]:
    return {"cluster": "c", "topic": TOPIC, "partition": 0, "offset": offset}


_PLACES = pa.schema([_HELD.field(name) for name in _place(0)])


def _held(rows: pa.Table, intent: Intent) -> pa.Table:
    at = pa.scalar(intent.clock).cast(pa.timestamp("us", "UTC")).as_py()
    said = {"reason": "bad", "rules": ["bad"], "quarantined_at": at}
    return pa.Table.from_pylist([{**_place(at), **said} for at in rows["offset"].to_pylist()], _HELD)
