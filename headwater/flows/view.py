"""A materialized view: a query over whole tables, brought up to date after commits of what it reads.

(One that aggregates new rows of one table alone is maintained as a streaming table is: `flows.aggregated`.)

The query is computed anew over its inputs at pinned versions; only what differs from the table is committed,
in one commit, so readers and sinks see the changes alone. The commit says which versions were read: it is the
checkpoint. How often that is done is bounded by `headwater.trigger`; a run that drains what is there does it
once, when the inputs get no more. One that reads `reference.clock` is computed although nothing is new, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
from pyspark.sql import DataFrame

from headwater.common import scratch
from headwater.common.diff import differ, same
from headwater.common.report import Account
from headwater.common.scratch import quoted
from headwater.errors import FlowError
from headwater.flows.context import Context
from headwater.flows.references import References
from headwater.flows.reporting import Reporting
from headwater.flows.rows import are_few, read
from headwater.flows.turns import TableFlow
from headwater.planner import analysis
from headwater.project.definitions import Table
from headwater.project.reference import CLOCK
from headwater.runtime import in_memory, sessions
from headwater.storage import delta, log, ranges
from headwater.storage.commit import Built, Committer
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Place
from headwater.storage.ranges import Position
from headwater.storage.target import GONE, Target

FEW = 100_000  # rows of each input, and of the table, that this process takes


@dataclass(frozen=True)
class _Input:
    """A table that is read whole: its files, their rows (None: its log does not say), and their bytes."""

    files: list[str]
    rows: int | None
    size: int

    @classmethod
    def at(cls, place: Place, version: int) -> _Input:
        """A table at a version."""
        table = delta.opened(place.path, version)
        files = [unquote(path) for path in table.file_uris()]
        if not files:
            return cls([], 0, 0)
        adds = pa.table(table.get_add_actions(flatten=True))
        rows_of = adds["num_records"].to_pylist() if "num_records" in adds.column_names else [None]
        rows = None if None in rows_of else sum(rows_of)
        return cls(files, rows, sum(adds["size_bytes"].to_pylist()))


@dataclass(frozen=True)
class _Changes:
    """What changes in the table: rows to merge, or the files that are its first; how many."""

    part: pa.Table | list[str]
    rows: int


class ViewFlow(TableFlow):
    """The flow of one materialized view."""

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        self._definition = table
        self._analysed = context.tables[table.name]
        self._table = context.open(table)
        intents = IntentFile(context.lake.flow_folder(table.name))
        self.committer = Committer(self._table, intents, merges={self.name: self._change})
        self._spark = sessions.child(
            context.spark, parallelism=table.limits.parallelism or context.project.conf.parallelism
        )
        self._references = References(context, table, self._spark)
        self._looked: float | None = None  # when it was seen what the clock alone has changed
        self._seen: dict[str, Any] = {}  # what was read when nothing had changed since the last batch

    def recover(self) -> None:
        """Do what a killed process left half done."""
        left = self.committer.unsealed()
        if left is not None:
            self._carry_out(left)

    def _turn(self) -> bool:
        if self._context.once and not all(map(self._context.heads.ended, self._inputs)):
            return False
        return self.step()

    def step(self) -> bool:
        """Bring the view up to date; whether there was anything new to read."""
        places = self._context.lake.places()
        if any(name not in places for name in self._inputs):
            return False
        heads = {name: self._head(name, places[name]) for name in self._inputs}
        if min(heads.values(), default=0) < 0:
            return False
        upto = {
            name: ranges.after(places[name].path, places[name].generation, head).json()
            for name, head in heads.items()
        }
        bound = self._context.bounds.references(self.name)
        pinned = self._references.pinnable() if bound is None else bound
        consumed = {**upto, **{name: {"version": version} for name, version in pinned.items()}}
        new = self._is_new(consumed, places) or (bound is not None and consumed != self._consumed())
        if not new and not self._is_time():
            return False
        flows = [
            flow for name, head in heads.items() for flow in log.read(places[name].path, head).flows.values()
        ]
        intent = Intent(
            flow=self.name,
            generation=self._table.place.generation,
            sequence=self._table.last(self.name) + 1,
            consumed=consumed,
            clock=self._context.clock(),
            fingerprint=self._analysed.fingerprint,
            newest=max((flow["newest"] for flow in flows if flow.get("newest")), default=None),
            references=pinned,
        )
        if not new and not self._changes(intent, self._pinned(intent)).rows:
            return False
        self._carry_out(intent)
        return True

    def _head(self, name: str, place: Place) -> int:
        """The version of an input that is read next; -1: none yet."""
        bound = self._context.bounds.upto(self.name, self.name, name)
        head = log.head(place.path)
        return head if bound is None else min(head, bound.version)

    def _consumed(self) -> dict[str, Any] | None:
        """What the last batch has read."""
        consumed: dict[str, Any] | None = self._table.flows.get(self.name, {}).get("consumed")
        return consumed

    def _is_time(self) -> bool:
        """Whether to look at what the clock alone has changed."""
        if CLOCK not in self._references or (self._context.once and self._looked is not None):
            return False
        due = self._looked is None or time.monotonic() - self._looked >= self._apart
        if due:
            self._looked = time.monotonic()
        return due

    def _is_new(self, consumed: dict[str, Any], places: Mapping[str, Place]) -> bool:
        """Whether anything has changed in what the view reads; commits without rows change nothing."""
        seen = self._seen or self._consumed()
        if seen is None or seen.keys() != consumed.keys():  # the first batch, or one of another definition
            return True
        if any(consumed[name] != seen[name] for name in consumed if name not in (CLOCK, *self._inputs)):
            return True
        for name in self._inputs:
            before, now = (Position.parse(positions[name]) for positions in (seen, consumed))
            path = places[name].path
            if before.generation != now.generation or not ranges.is_as_read(path, before):
                return True
            commits = log.commits(path, after=before.version, upto=now.version)
            if any(c.added or c.removed or c.expired for c in commits):
                return True
        self._seen = consumed
        return False

    def _carry_out(self, intent: Intent) -> None:
        reporting = Reporting(self._context, self.name)
        self._seen = {}
        reporting.committed(intent, self.committer.carry_out(intent, self._build))

    def _build(self, intent: Intent) -> Built:
        inputs = self._pinned(intent)
        changes = self._changes(intent, inputs)
        rows = sum(each.rows or 0 for each in inputs.values())
        account = Account(
            rows_in=rows,
            rows_out=changes.rows,
            rows_read=rows,
            files_read=sum(len(each.files) for each in inputs.values()),
            bytes_read=sum(each.size for each in inputs.values()),
        )
        return Built({self.name: changes.part}, appended=isinstance(changes.part, list), account=account)

    def _changes(self, intent: Intent, inputs: Mapping[str, _Input]) -> _Changes:
        """What has to change in the table, for it to hold what the query gives.

        Where that may be much, Spark writes it as files below the table. These are the table's first, or
        DuckDB compares them with those that it has: no more of either is in this process than what differs.

        Raises:
            FlowError: two rows have the same keys.
        """
        result, columns = self._query(intent, inputs), self._analysed.stored
        if all(each.rows is not None and each.rows <= FEW for each in (*inputs.values(), self._held())):
            rows = result.toArrow().cast(columns)
            with scratch.connection() as connection:
                connection.register("new", rows)
                connection.register("held", self._table.held(columns))
                changes = self._difference(connection)
            return _Changes(changes, len(changes))
        files = self._table.write(result, f"{intent.batch}-whole")
        count, paths = self._table.rows(files), [str(self._table.place.path / file) for file in files]
        with scratch.connection() as connection:
            scratch.load(connection, "new", columns, paths)
            if count and not self._table.files():
                self._are_told_apart(connection)
                return _Changes(files, count)
            scratch.load(connection, "held", columns, self._table.files())
            changes = self._difference(connection)
        self._table.forget(files)
        return _Changes(changes, len(changes))

    def _held(self) -> _Input:
        """The table itself."""
        return _Input.at(self._table.place, self._table.version)

    def _query(self, intent: Intent, inputs: Mapping[str, _Input]) -> DataFrame:
        """What the query gives."""
        frames = [
            self._references.read(name, intent.references[name])
            if name in self._references
            else self._frame(name, inputs[name])
            for name in self._definition.sources
        ]
        return analysis.apply(self._spark, self._definition, frames)

    def _pinned(self, intent: Intent) -> dict[str, _Input]:
        """The inputs at the versions that are pinned."""
        places = self._context.lake.places()
        return {
            name: _Input.at(places[name], Position.parse(intent.consumed[name]).version)
            for name in self._inputs
        }

    def _frame(self, name: str, found: _Input) -> DataFrame:
        """What the query sees of an input: all of it."""
        columns = self._context.tables[name].columns
        if not found.files:
            return in_memory.empty(self._spark, columns)
        if found.rows is not None and are_few(found.files, found.rows):
            rows = read(found.files, columns).combine_chunks()
            return in_memory.frame(self._spark, rows, columns).coalesce(1)
        return self._spark.read.schema(columns).parquet(*found.files)

    def _difference(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        """What has to change in the rows `held`, for them to be the rows `new`: the table's columns, and
        whether a row goes."""
        self._are_told_apart(connection)
        on_same = f"ON {same('new', 'old', map(quoted, self._analysed.keys))}"
        columns = [quoted(name) for name in self._analysed.columns.fieldNames()]
        changes = connection.execute(
            f"SELECT new.*, false AS {GONE} FROM new LEFT JOIN (SELECT *, true AS _here FROM held) old "
            f"{on_same} WHERE old._here IS NULL OR {differ('new', 'old', columns)} "
            f"UNION ALL SELECT old.*, true FROM held old ANTI JOIN new {on_same}"
        ).to_arrow_table()
        return changes.cast(self._analysed.stored.append(pa.field(GONE, pa.bool_())))

    def _are_told_apart(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Check that no two of the rows `new` have the same keys."""
        keys = ", ".join(map(quoted, self._analysed.keys))
        ((twice,),) = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM new GROUP BY {keys} HAVING count(*) > 1)"
        ).fetchall()
        if twice:
            raise FlowError(
                f"{self._definition.file}: {self.name} has {twice} keys that several rows share "
                f"({', '.join(self._analysed.keys)})",
                code="KEYS_SHARED",
                where=self._definition.where,
                hint="say in headwater.keys what tells its rows apart",
            )

    def _change(self, target: Target, rows: pa.Table, identity: Identity) -> int:
        return target.change(rows, self._analysed.keys, identity)
