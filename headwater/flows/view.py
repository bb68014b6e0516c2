"""A materialized view: a query over whole tables, brought up to date after commits of what it reads.

(One that aggregates new rows of one table alone is maintained as a streaming table is: `flows.aggregated`.)

The query is computed over its inputs at pinned versions: all of it, or, where few rows of a large input have
changed and it is known which rows of the view they touch (`headwater.planner.reach`), these alone. Only what
differs from the table is committed, in one commit, so readers and sinks see the changes alone. It says which
versions were read, and by which definition: it is the checkpoint. How often that is done is bounded by
`headwater.trigger`; a run that drains what is there does it once, when the inputs get no more. One that reads
`reference.clock` is computed although nothing is new, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.common.report import Account
from headwater.flows.asked import Query
from headwater.flows.compared import Compared
from headwater.flows.computed import Computed
from headwater.flows.context import Context
from headwater.flows.incremental import Incremental
from headwater.flows.inputs import Input
from headwater.flows.references import Outrun, References, check_kept
from headwater.flows.reporting import Reporting
from headwater.flows.turns import TableFlow
from headwater.flows.view_changes import Changes, Tables
from headwater.project.definitions import Table
from headwater.project.reference import CLOCK
from headwater.runtime import sessions
from headwater.storage import log, ranges
from headwater.storage.commit import Built, Committer
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Place
from headwater.storage.names import stage_name, state_name
from headwater.storage.ranges import Position


class ViewFlow(TableFlow):
    """The flow of one materialized view."""

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        self._definition = table
        self._analysed = context.tables[table.name]
        self._table = context.open(table)
        intents = IntentFile(context.lake.flow_folder(table.name))
        half_done = self._half_done(intents)
        tables = self._tables(anew=half_done is not None)
        if half_done is not None:
            intents.seal(half_done)
        self.committer = Committer(
            self._table,
            intents,
            merges={name: each.change for name, each in tables.items()},
            open_target=lambda name: tables[name].target,
        )
        for name in tables:
            self.committer.target(name)
        self._spark = sessions.child(
            context.spark, parallelism=table.limits.parallelism or context.project.conf.parallelism
        )
        self._references = References(context, table, self._spark)
        query = Query(context, table, self._spark, self._references)
        kept = Tables(tables[self.name], tables.get(state_name(self.name)), tables.get(stage_name(self.name)))
        self._computed = Computed(kept, query, Incremental(context, table, kept, query))
        self._looked: float | None = None  # when it was seen what the clock alone has changed
        self._seen: dict[str, Any] = {}  # what was read when nothing had changed since the last batch

    def recover(self) -> None:
        """Do what a killed process left half done."""
        left = self.committer.left(self._analysed.fingerprint)
        if left is not None:
            self._carry_out(left, self._build)

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
        far = not new and self._is_far(consumed)
        if not new and not far and not self._is_time():
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
            definition=self._analysed.fingerprint,
        )
        if not new and not far and not self._changes(intent, self._pinned(intent)).rows:
            return False
        try:
            self._carry_out(intent, self._build_pinned)
        except Outrun:
            self._context.bounds.outrun(self._inputs)
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

    def _is_as_defined(self) -> bool:
        """Whether the table's rows are by this definition."""
        mine: dict[str, Any] = self._table.flows.get(self.name, {})
        return mine.get("definition") == self._analysed.fingerprint

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
        if seen is None or seen.keys() != consumed.keys() or not self._is_as_defined():
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

    def _is_far(self, consumed: dict[str, Any]) -> bool:
        """Whether a batch tells how far the inputs are read, although nothing has changed in them."""
        told = self._consumed() or consumed
        return any(
            ranges.is_far(*(Position.parse(each[name]) for each in (consumed, told))) for name in self._inputs
        )

    def _carry_out(self, intent: Intent, build: Callable[[Intent], Built]) -> None:
        reporting = Reporting(self._context, self.name)
        self._seen = {}
        reporting.committed(intent, self.committer.carry_out(intent, build))

    def _build_pinned(self, intent: Intent) -> Built:
        """What has to change in the table, by what a batch reads and holds now that it is pinned.

        Raises:
            Outrun: maintenance has removed some of it before, or is about to.
        """
        if self._context.bounds.references(self.name) is None:  # else who has said the bounds holds all
            self._references.check(intent.references)
            places = self._context.lake.places()
            for name in (name for name in self._inputs if not self._is_held(places[name])):
                check_kept(self._context, places[name], Position.parse(intent.consumed[name]).version)
        return self._build(intent)

    def _is_held(self, place: Place) -> bool:
        """Whether what comes next of an input is held since the last batch."""
        if (read := (self._consumed() or {}).get(place.name)) is None:
            return False
        at = Position.parse(read)
        return at.generation == place.generation and ranges.is_as_read(place.path, at)

    def _build(self, intent: Intent) -> Built:
        changes = self._changes(intent, self._pinned(intent))
        account = Account(
            rows_in=changes.read,
            rows_out=changes.rows,
            rows_read=changes.read,
            files_read=len(changes.files),
            bytes_read=sum(changes.files.values()),
            keys_touched=changes.keys,
        )
        return Built(changes.parts, appended=changes.appended, rows=changes.read, account=account)

    def _changes(self, intent: Intent, inputs: Mapping[str, Input]) -> Changes:
        """What has to change in the table."""
        before = self._consumed() if self._is_as_defined() else None
        return self._computed.changes(intent, inputs, before)

    def _pinned(self, intent: Intent) -> dict[str, Input]:
        """The inputs at the versions that are pinned."""
        places = self._context.lake.places()
        return {
            name: Input.at(places[name], Position.parse(intent.consumed[name]).version)
            for name in self._inputs
        }

    def _half_done(self, intents: IntentFile) -> Intent | None:
        """The batch that another definition has staged, and that is not in the view: it is given up. What is
        kept beside the view may have it, and is made anew first."""
        left = intents.left(self._table)
        if left is None or left.sealed or left.staged is None or self._table.done(left):
            return None
        return left if left.fingerprint != self._analysed.fingerprint else None

    def _tables(self, *, anew: bool) -> dict[str, Compared]:
        """The view, and what is kept beside it, by name.

        What is kept by another definition is made anew, or goes: all of the view is then computed.

        Args:
            anew: whether all that is kept beside it is.
        """
        analysed, lake = self._analysed, self._context.lake
        found = {self.name: Compared(self._table, analysed.stored, analysed.keys, self._definition.where)}
        kept: dict[str, tuple[pa.Schema, Sequence[str], str]] = {}
        if analysed.groups is not None:
            made_of = f"What the groups of {self.name} are made of"
            kept[state_name(self.name)] = analysed.groups.state, analysed.groups.keys, made_of
        if analysed.stage is not None:
            given = f"What the inner part of {self.name} gives"
            kept[stage_name(self.name)] = analysed.stage.stored, analysed.stage.keys, given
        names = (state_name(self.name), stage_name(self.name))
        if stale := [name for name in names if name in lake.places() and name not in kept]:
            lake.drop(stale, [])
            lake.finish()
        for name, (columns, keys, comment) in kept.items():
            target = self._context.open_beside(self.name, name, columns, comment, anew=anew)
            if not target.columns.equals(columns):
                target = self._context.open_beside(self.name, name, columns, comment, anew=True)
            target.cluster(keys)
            found[name] = Compared(target, columns, keys, self._definition.where)
        return found
