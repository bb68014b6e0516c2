"""Silver → gold, each window once: appended when it is over, and never changed after that.

A batch's partial result is put together with the windows that are open, which stand in `<table>__state`. A
window is over when every partition of Kafka has reached its end and the delay. A partition that has been
silent for the idle timeout, with nothing on its way, does not hold the others back; when all are silent,
windows whose end and delay lie in the past are over. Rows that come later than that go to `<table>_late`:
final and late rows together are all rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headwater.aggregate import BOUNDS
from headwater.combine import combine, state_keys
from headwater.commit import Built, Merge, Part
from headwater.definitions import Table
from headwater.errors import BrokerError
from headwater.eventtime import NEVER, EventTime, state_name
from headwater.flows.aggregated import AggregateFlow
from headwater.flows.context import Context
from headwater.flows.reading import interval
from headwater.flows.upstream import Upstream
from headwater.intent import Intent
from headwater.ranges import Position, Range
from headwater.target import Identity, Target

_EVER = 2**62


class FinalFlow(AggregateFlow):
    """The flow of one table of final windows."""

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        assert self._lateness is not None
        self._delay = self._lateness.delay
        self._silence = interval(table.idle_timeout) * 1000
        self._upstream = Upstream(context, self._stream)
        self._state = self.committer.target(state_name(self.name))
        self._held: tuple[int, pa.Table] | None = None  # the open windows, and as of which version

    def run(self) -> None:
        """Take what is new until the run ends; with `once`, until the input has ended and is drained.

        Raises:
            FlowError, CommitError: what trying again will not mend.
        """
        super().run()
        above = self._context.project.above([self.name])
        whole = not self._context.stop.is_set() and not set(above) & set(self._context.board.failed())
        if self._context.close and whole:  # else rows may be left that come with the next run
            self._close(_EVER, set())

    def step(self) -> bool:
        """Take one batch, or close what time alone has ended; whether there was either."""
        return super().step() or (not self._context.once and self._tick())

    def _merges(self) -> Mapping[str, Merge]:
        return {state_name(self.name): self._change}

    def _beside(self) -> list[str]:
        return [*super()._beside(), state_name(self.name)]

    def _open_beside(self, name: str) -> Target:
        if name != state_name(self.name):
            return super()._open_beside(name)
        assert self._analysed.state is not None
        return self._opened(name, self._analysed.state, f"Windows of {self.name} that are open")

    def _told(self, found: Range) -> EventTime:
        after = super()._told(found)
        assert after is not None
        partitions, idle = self._partitions(after, found.upto)
        return after.closing(after.low(partitions - idle or partitions), idle)

    def _build(self, intent: Intent) -> Built:
        held = self._open_windows()
        fresh, parts = held.slice(0, 0), dict[str, Part]()
        if intent.files:
            rows = self._read(intent)
            fresh, parts = self._fresh(rows, intent, bounds=True)
            self._counts = rows.counts()
        closed = EventTime.parse(intent.event_time).closed
        changes, over = combine(self._aggregate, held, fresh, closed - self._delay)
        self._written = len(over)
        return Built(
            {**parts, state_name(self.name): changes, self.name: self._table.write(over, intent.batch)}
        )

    def _tick(self) -> bool:
        """Close what is over although no row comes; whether there was anything."""
        if not len(self._open_windows()):
            return False
        before = self._event_time()
        partitions, idle = self._partitions(before, self._position)
        return self._close(before.low(partitions - idle) if partitions > idle else _now(), idle)

    def _partitions(self, reached: EventTime, upto: Position) -> tuple[set[str], set[str]]:
        """The partitions that have had records; and which of them are silent, if that makes a difference."""
        partitions, now = {*self._upstream.known(), *reached.reached}, _now()
        silent = {each for each in partitions if now - reached.seen.get(each, NEVER) >= self._silence}
        held_back = partitions > silent and reached.low(partitions - silent) > reached.low(partitions)
        if not silent or not (held_back or partitions == silent):
            return partitions, set()
        try:
            return partitions, self._upstream.quiet(upto, silent)
        except BrokerError:  # what it holds is not known, so all wait
            return partitions, set()

    def _close(self, upto: int, idle: set[str]) -> bool:
        """Close the open windows that are over at a time; whether there was one."""
        ends = pc.cast(self._open_windows()[BOUNDS[1]], pa.int64())
        over = ends.filter(pc.less(pc.add(ends, self._delay), pa.scalar(upto, pa.int64())))
        if not len(over):
            return False
        nothing = Range((), 0, self._position, None)
        closed = self._event_time().closing(pc.max(over).as_py() + self._delay + 1, idle)
        self._carry_out(self._intent(nothing, closed))
        return True

    def _open_windows(self) -> pa.Table:
        version = self._state.version
        if self._held is None or self._held[0] != version:
            assert self._analysed.state is not None
            self._held = (version, self._state.held(self._analysed.state))
        return self._held[1]

    def _change(self, table: Target, rows: pa.Table, identity: Identity) -> int:
        return table.change(rows, state_keys(self._aggregate), identity)


def _now() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000
