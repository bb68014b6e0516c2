"""Silver → gold, each window once: appended when it is over, and never changed after that.

A batch's partial result is put together with the windows that are open, which stand in `<table>__state`; when
they are over says `headwater.flows.timed`. Rows that come later than that go to `<table>_late`: final and
late rows together are all rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headwater.flows.aggregated import AggregateFlow
from headwater.flows.context import Context
from headwater.flows.work import Counts
from headwater.planner.aggregate import BOUNDS
from headwater.planner.partials import combine
from headwater.planner.parts import state_keys
from headwater.project.definitions import Table
from headwater.storage.commit import Built, Merge, Part
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent
from headwater.storage.names import state_name
from headwater.storage.target import Target

_EVER = 2**62


class FinalFlow(AggregateFlow):
    """The flow of one table of final windows."""

    waits = True
    keeps = "Open windows"

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        self._state = self.committer.target(state_name(self.name))
        self._held: tuple[int, pa.Table] | None = None  # the open windows, and as of which version

    def _merges(self) -> Mapping[str, Merge]:
        return {state_name(self.name): self._change}

    def _build(self, intent: Intent) -> Built:
        assert self._lateness is not None
        held = self._open_windows()
        fresh, parts, late, counts = held.slice(0, 0), dict[str, Part](), 0, Counts()
        if intent.files:
            rows = self._read(intent)
            fresh, parts, late = self._fresh(rows, intent, bounds=True)
            counts = rows.counts()
        closed = self._parsed(intent.event_time).closed
        changes, over = combine(self._aggregate, held, fresh, closed - self._lateness.delay, self._where)
        written = self._table.write(over, intent.batch)
        return Built(
            {**parts, state_name(self.name): changes, self.name: written},
            account=self._account(intent, counts, len(over), late=late),
        )

    def _waiting(self) -> bool:
        return len(self._open_windows()) > 0

    def _due(self, until: int) -> pa.ChunkedArray:
        return pc.cast(self._open_windows()[BOUNDS[1]], pa.int64())

    def _end(self) -> int:
        return _EVER

    def _open_windows(self) -> pa.Table:
        version = self._state.version
        if self._held is None or self._held[0] != version:
            assert self._analysed.state is not None
            self._held = (version, self._state.held(self._analysed.state))
        return self._held[1]

    def _change(self, table: Target, rows: pa.Table, identity: Identity) -> int:
        return table.change(rows, state_keys(self._aggregate), identity)
