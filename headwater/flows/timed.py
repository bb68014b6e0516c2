"""What flows that tell the time have in common: how far event time has come, what is late, and what is over.

A flow that waits, because something of it is over only at a time that has not come yet, is woken by that time
too. A time has come when every partition of Kafka has reached it and the delay. A partition that has been
silent for the idle timeout, with nothing on its way, does not hold the others back. Nor does one whose
records have no event time, once runs have waited for it as long, and all that was there at the end of
that has come. When all are silent, what lies in the past is over. Of several streams each has partitions of
its own, so what is over is over in all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.common import times
from headwater.common.durations import MICROSECOND, interval
from headwater.flows.context import Context
from headwater.flows.cursor import Cursor
from headwater.flows.ranged import RangedFlow, Ranges
from headwater.flows.upstream import Upstreams
from headwater.planner import event_time
from headwater.planner.event_time import NEVER, EventTime, Times, Wait
from headwater.project.definitions import Table
from headwater.storage import stored
from headwater.storage.commit import Committer, Merge
from headwater.storage.intent import Intent
from headwater.storage.names import late_name, state_name
from headwater.storage.ranges import Position
from headwater.storage.target import Target


class TimedFlow(RangedFlow):
    """The flow of one table whose definition may say how late rows may be."""

    waits = False  # whether something of it is over when its time has come
    keeps = ""  # what the table of its state holds; "": there is none

    def __init__(self, context: Context, table: Table) -> None:
        super().__init__(context, table)
        self._lateness = self._analysed.lateness
        self._silence = interval(table.idle_timeout) // MICROSECOND
        self._streams = {each: table.stream(each) for each in self._inputs}
        self._upstreams = Upstreams(context, {each: stream.mark for each, stream in self._streams.items()})
        self._times: tuple[Mapping[str, list[str]], Mapping[str, Times]] | None = None  # of which files
        self._awaited = self._event_time().awaited  # as of now

    def run(self) -> None:
        """Take what is new until the run ends; with `once`, until the input has ended and is drained.

        Raises:
            FlowError, CommitError: what trying again will not mend.
        """
        super().run()
        above = self._context.project.above([self.name])
        whole = not self._context.stop.is_set() and not set(above) & set(self._context.board.failed())
        if self.waits and self._context.close and whole:  # else rows may be left that come with the next run
            with self._context.turn(self.name) as mine:
                while mine and self._close(self._end(), set()):
                    pass

    def step(self) -> bool:
        """Take one batch, or do what time alone has brought; whether there was either."""
        return super().step() or (self.waits and (self._is_told() or self._tick()))

    def _waiting(self) -> bool:
        """Whether there may be anything that waits."""
        raise NotImplementedError

    def _due(self, until: int) -> pa.ChunkedArray:
        """When each thing that waits is over: microseconds since the epoch, without the delay. Of those that
        are over later than `until`, likewise, some may be left out."""
        raise NotImplementedError

    def _end(self) -> int:
        """The time, with the delay, up to which all is over when the input has ended."""
        raise NotImplementedError

    def _as_far(self, closed: int) -> int:
        """How far to go in one batch, where all is over up to a time, with the delay."""
        return closed

    def _commits(self, merges: Mapping[str, Merge]) -> Committer:
        """The commit of the flow, with the tables beside its own."""
        committer = Committer(self._table, self._intents, merges=merges, open_target=self._open_beside)
        for name in self._beside():
            committer.target(name)
        return committer

    def _beside(self) -> list[str]:
        late = [late_name(self.name)] if self._lateness else []
        return [*late, state_name(self.name)] if self.keeps else late

    def _open_beside(self, name: str) -> Target:
        if name == state_name(self.name):
            assert self._analysed.state is not None
            target = self._opened(name, self._analysed.state, f"{self.keeps} of {self.name}")
            target.cluster(self._definition.cluster_by)
            return target
        assert self._analysed.late is not None
        comment = f"Rows that came too late for {self.name}, with the watermark that they missed"
        return self._opened(name, self._analysed.late, comment)

    def _opened(self, name: str, columns: pa.Schema, comment: str) -> Target:
        target = self._context.open_beside(self.name, name, columns, comment)
        if name == late_name(self.name):  # it holds rows of the input, which may have got columns
            target.add(columns)
        target.require(columns, self._definition.file)
        return target

    def _event_time(self) -> EventTime:
        """How far event time had come after the last batch."""
        return self._parsed(self._table.flows.get(self.name, {}).get("event_time"))

    def _parsed(self, value: Mapping[str, Any] | None) -> EventTime:
        """What was kept of event time, by the delay that the definition says, as it may have said another."""
        time = EventTime.parse(value)
        return time if self._lateness is None else time.by(self._lateness.delay)

    def _in_turn(self) -> Sequence[Cursor]:
        """Those first whose time has come least far: rows of the others would wait for theirs."""
        reached = self._event_time().reached

        def come(cursor: Cursor) -> int:
            mark = self._streams[cursor.name].mark
            return max((at for each, at in reached.items() if each.startswith(mark)), default=NEVER)

        return sorted(self._cursors.values(), key=come)

    def _told(self, found: Ranges) -> EventTime | None:
        if self._lateness is None:
            return None
        after = self._event_time().after(
            self._times_of({name: [*each.files] for name, each in found.items()})
        )
        if not self.waits:
            return after
        positions = {name: each.upto for name, each in found.items()}
        partitions, idle = self._partitions(after, positions, self._now())
        upto = self._as_far(after.low(partitions - idle or partitions))
        return after.closing(upto, idle, self._awaited)

    def _times_of(self, files: Mapping[str, list[str]]) -> Mapping[str, Times]:
        """The event times of a batch's files."""
        if self._times is None or self._times[0] != files:
            found: dict[str, Times] = {}
            for name, stream in self._streams.items():
                columns = stored.schema(self._cursors[name].columns)
                times_of = event_time.times(files[name], str(stream.event_time), columns)
                found |= {f"{stream.mark}{partition}": each for partition, each in times_of.items()}
            self._times = (files, found)
        return self._times[1]

    def _may_be_late(self, intent: Intent) -> bool:
        """Whether a row of the batch may come too late."""
        if self._lateness is None:
            return False
        return not self._lateness.none(self._event_time(), self._times_of(self._files(intent)))

    def _is_told(self) -> bool:
        """Do what is over because the bounds of the run say so; whether they say more than is known."""
        told, before = self._context.bounds.closed(self.name), self._event_time()
        if told is None or before.is_past(told):
            return False
        assert self._lateness is not None
        upto = self._as_far(told.by(self._lateness.delay).closed)
        self._carry_out(self._intent(self._nothing(), before.closing(upto, told.idle)))
        return True

    def _nothing(self) -> Ranges:
        return {each: cursor.nothing() for each, cursor in self._cursors.items()}

    def _tick(self) -> bool:
        """Do what is over although no row comes; whether there was anything."""
        if self._context.once or not self._waiting():
            return False
        before, now = self._event_time(), self._now()  # before Kafka is asked, which may take long
        positions = {name: cursor.position for name, cursor in self._cursors.items()}
        partitions, idle = self._partitions(before, positions, now)
        return self._close(before.low(partitions - idle) if partitions > idle else now, idle)

    def _partitions(
        self, reached: EventTime, upto: Mapping[str, Position], now: int
    ) -> tuple[set[str], set[str]]:
        """The partitions that have had records; and which of them are silent, if that makes a difference."""
        partitions = {*self._upstreams.known(), *reached.reached}
        silent = {each for each in partitions if now - reached.seen.get(each, NEVER) >= self._silence}
        held_back = partitions > silent and reached.low(partitions - silent) > reached.low(partitions)
        if not silent or not (held_back or partitions == silent):
            self._awaited = {}
            return partitions, set()
        return partitions, self._idle(upto, silent, reached.seen, now)

    def _idle(
        self, upto: Mapping[str, Position], silent: set[str], seen: Collection[str], now: int
    ) -> set[str]:
        """Which silent partitions are not waited for any more: those with nothing on its way. One that has
        never had an event time, or has more on its way, was silent only since the others have waited for it:
        so it is waited for as long, and until all has come that was there at the end of that. Where Kafka
        can't be asked, nobody looks."""
        found, before = set(), self._awaited
        self._awaited = {each: wait for each, wait in before.items() if each in silent}
        for each, (come, there) in self._upstreams.left(upto, silent).items():
            if each in seen and come >= there:
                self._awaited.pop(each, None)
                found.add(each)
                continue
            wait = before.get(each, Wait(now, there)).looking(now, come, there, self._silence)
            self._awaited[each] = wait
            if wait.over(self._silence):
                found.add(each)
        return found

    def _now(self) -> int:
        """Microseconds since the epoch."""
        return (self._context.now() - times.EPOCH) // MICROSECOND

    def _close(self, upto: int, idle: set[str]) -> bool:
        """Do what is over at a time; whether there was anything."""
        assert self._lateness is not None
        delay = self._lateness.delay
        due = self._due(upto - delay)
        over = due.filter(pc.less(pc.add(due, delay), pa.scalar(upto, pa.int64())))
        if not len(over):
            return False
        last = self._as_far(pc.max(over).as_py() + delay + 1)
        closed = self._event_time().closing(last, idle, self._awaited)
        self._carry_out(self._intent(self._nothing(), closed))
        return True
