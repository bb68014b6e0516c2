"""Silver → gold: groups of rows, changed in place as rows come.

A batch is aggregated by itself, and its partial result merged into the table, which is the state: see
`headwater.planner.aggregate`. Sessions are put together with those that they touch: see
`headwater.planner.partials`. Where lateness is bounded, rows that come later go to the late table, and
change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headwater.flows.context import Context
from headwater.flows.rows import Rows
from headwater.flows.timed import TimedFlow
from headwater.flows.work import Work
from headwater.planner import aggregate, partials
from headwater.planner.aggregate import BOUNDS, LATE, ROWS
from headwater.planner.event_time import NEVER
from headwater.planner.group_by import ENDS
from headwater.planner.parts import state_keys
from headwater.project.definitions import Table
from headwater.storage.commit import Built, Merge, Part
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent
from headwater.storage.names import late_name
from headwater.storage.pruning import reaches, since, upto
from headwater.storage.target import Target


class AggregateFlow(TimedFlow):
    """The flow of one table of groups."""

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        assert self._analysed.aggregate is not None
        self._aggregate = self._analysed.aggregate
        self._carried = None
        bounds = [pa.field(name, pa.timestamp("us", "UTC")) for name in BOUNDS]
        grows = self._aggregate.window == "session"
        stored = self._analysed.stored
        self._partial = self._analysed.state or (pa.schema([*stored, *bounds]) if grows else stored)
        self._where = table.where
        self.committer = self._commits(self._merges())

    def _merges(self) -> Mapping[str, Merge]:
        return {self.name: self._merge if self._aggregate.merges else self._change}

    def _build(self, intent: Intent) -> Built:
        rows = self._read(intent)
        session = self._aggregate.window == "session"
        fresh, parts, late = self._fresh(rows, intent, bounds=session)
        changes = (
            fresh if self._aggregate.merges else self._grown(fresh) if session else self._regrouped(fresh)
        )
        account = self._account(intent, rows.counts(), len(changes), late=late)
        return Built({**parts, self.name: changes}, account=account)

    def _fresh(self, rows: Rows, intent: Intent, *, bounds: bool) -> tuple[pa.Table, dict[str, Part], int]:
        """The partial result of the rows that are on time; the late table's part, if it gets any; and how
        many rows are late, once for each window."""
        lateness = self._lateness
        if lateness is None or not self._may_be_late(intent):
            fresh = partials.computed(rows.through, self._where, bounds=bounds)
            return fresh.cast(self._partial), {}, 0
        found = partials.computed(rows.through, self._where, lateness.marked, bounds=bounds)
        count = int(pc.sum(found.filter(found[LATE])[ROWS], min_count=0).as_py())
        fresh = found.filter(pc.invert(found[LATE])).drop_columns([LATE, ROWS]).cast(self._partial)
        if not count:
            return fresh, {}, 0
        assert self._analysed.late is not None
        late = rows.through(
            "late", lambda result: lateness.late(lateness.marked(aggregate.rows(result, self._where)))
        )
        name = late_name(self.name)
        written = self.committer.target(name).write(late.cast(self._analysed.late), intent.batch)
        return fresh, {name: written}, count

    def _work(self, intent: Intent) -> Work:
        work, lateness = replace(super()._work(intent), ordered=False), self._lateness
        if lateness is None or not self._may_be_late(intent):
            return work
        before, few = self._event_time(), work.few
        assert few is not None
        return replace(
            work,
            function=lambda stream: work.function(lateness.told(stream, before)),
            few=lambda rows, columns: few(*lateness.told_few(rows, columns, before)),
        )

    def _regrouped(self, fresh: pa.Table) -> pa.Table:
        """What changes in the table's groups with the partial result of new rows."""
        held = self._table.held(self._analysed.stored, reaches(fresh, self._aggregate.keys))
        return partials.regrouped(self._aggregate, held, fresh, self._where)

    def _grown(self, fresh: pa.Table) -> pa.Table:
        """What changes in the table's sessions with new ones."""
        ends = {output.window: output.name for output in self._aggregate.outputs if output.window}

        def bound(rows: pa.Table, end: str) -> pa.ChunkedArray:
            return rows[ends[end]] if end in ends else pc.struct_field(rows[ends["all"]], end)

        least, greatest = pc.min(fresh["_start"]), pc.max(fresh["_end"])
        wanted = reaches(fresh, state_keys(self._aggregate)[: -len(BOUNDS)])
        if len(fresh):
            wanted |= {
                ends[end]: reach
                for end, reach in zip(ENDS, (upto(greatest), since(least)), strict=True)
                if end in ends
            }
        held = self._table.held(self._analysed.stored, wanted)
        for name, end in zip(BOUNDS, ENDS, strict=True):
            held = held.append_column(fresh.schema.field(name), bound(held, end))
        if len(fresh):
            near = pc.and_(pc.greater_equal(held["_end"], least), pc.less_equal(held["_start"], greatest))
            held = held.filter(near)
        changes, _ = partials.combine(self._aggregate, held, fresh, NEVER, self._where)
        return changes.drop_columns(list(BOUNDS))

    def _merge(self, table: Target, rows: pa.Table, identity: Identity) -> int:
        return partials.merge(self._aggregate, table, rows, identity, self._where)

    def _change(self, table: Target, rows: pa.Table, identity: Identity) -> int:
        return table.change(rows, self._aggregate.keys, identity)
