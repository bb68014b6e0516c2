"""How far the records of each partition, of Kafka or of files, have come on their way to a table's flow.

A flow of several streams tells the partitions of one from those of the others by its mark, which stands
before them: records of one partition may come by two ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from headwater.common import times
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import end_offsets
from headwater.errors import BrokerError
from headwater.flows.context import Context
from headwater.project.definitions import Files, Topic
from headwater.storage import log
from headwater.storage.names import FILES, FILES_CLUSTER
from headwater.storage.ranges import Position

_FRESH = timedelta(seconds=1)  # for which Kafka's answer is good enough


class Upstream:
    """The ways from the partitions to the table `stream`; a partition is `cluster/topic/number`."""

    def __init__(self, context: Context, stream: str) -> None:
        self._context = context
        self._stream = stream
        raw = context.project.raw
        self._raw = [raw[name] for name in context.project.above([stream]) if name in raw]
        self._topics = [each for each in self._raw if isinstance(each, Topic)]
        self._ends: tuple[datetime, dict[str, int]] = (times.EPOCH, {})

    def known(self) -> set[str]:
        """The partitions that are reckoned with: those that have had records, whether bronze has them by now
        or Kafka alone, as of a topic that bronze has not begun with. A live run reckons with empty ones of
        its topics too: their first records may be on their way when those of others have come."""
        arrived = self._arrived()
        begun = {partition for partition, offset in arrived.items() if offset > 0}
        topics = {partition.rpartition("/")[0] for partition in arrived}
        unread = [topic for topic in self._topics if self._partition(topic.topic, 0)[:-2] not in topics]
        if unread or begun < arrived.keys():
            with suppress(BrokerError):
                ends = self._end_offsets()
                if not self._context.once:
                    return {*arrived, *ends}
                begun |= {partition for partition, end in ends.items() if end > 0}
        return begun

    def left(self, position: Position, partitions: set[str]) -> dict[str, tuple[int, int]]:
        """{partition → up to which offset its records have come to who has read the stream up to `position`,
        and up to which there are any}, of these partitions.

        None of Kafka's, where Kafka can't be asked: what it holds is not known.
        """
        come, ends = self._come(self._stream, position.version), self._arrived()
        asked = {each for each in partitions if each.startswith(f"{FILES_CLUSTER}/")}
        if asked < partitions:
            with suppress(BrokerError):
                there = self._end_offsets()  # as of a moment ago: bronze may have more by now
                ends |= {each: max(end, ends.get(each, 0)) for each, end in there.items()}
                asked = partitions
        return {each: (come.get(each, 0), ends.get(each, 0)) for each in asked}

    def _arrived(self, among: Sequence[Topic | Files] | None = None) -> dict[str, int]:
        """{partition → the offset up to which bronze has its records}; of some of its tables, or all."""
        places = self._context.lake.places()
        found: dict[str, int] = {}
        for raw in self._raw if among is None else among:
            if raw.name in places:
                found |= self._come(raw.name, log.head(places[raw.name].path))
        return found

    def _come(self, table: str, version: int) -> dict[str, int]:
        """{partition → the offset up to which its records have come to a version of a table}."""
        places, project = self._context.lake.places(), self._context.project
        if version < 0 or table not in places:
            return {}
        flows = log.read(places[table].path, version).flows
        if table in project.raw:
            return {
                self._partition(topic, number): end
                for flow in flows.values()
                for topic, ends in flow["consumed"].items()
                for number, end in ends.items()
            }
        found: dict[str, int] = {}
        definition = project.tables[table]
        flows_in = definition.flows or (definition,)
        ways = [(flow, source) for flow in flows_in for source in project.streams(flow)]
        for flow, source in ways:
            consumed, come = flows.get(flow.name, {}).get("consumed", {}), dict[str, int]()
            if source in consumed:  # else nothing has come this way yet
                at = Position.parse(consumed[source])
                version = log.head(places[source].path) if at.is_over and source in places else at.version
                come = self._come(source, self._passed_over(source, version))
            if len(ways) == 1:
                return come
            for each in self._partitions(source):
                found[each] = min(come.get(each, 0), found.get(each, come.get(each, 0)))
        return found

    def _partitions(self, table: str) -> set[str]:
        """The partitions whose records bronze has, of those that have a way to a table."""
        above = {table, *self._context.project.above([table])}
        return {*self._arrived([raw for raw in self._raw if raw.name in above])}

    def _passed_over(self, table: str, version: int) -> int:
        """The version that who has read a table up to another has come to without a batch: commits that add
        no rows, as of offsets that have no records, are in no position that is kept."""
        places = self._context.lake.places()
        if version < 0 or table not in places:
            return version
        path = places[table].path
        for commit in log.commits(path, after=version, upto=log.head(path)):
            if commit.added:
                break
            version = commit.version
        return version

    def _end_offsets(self) -> dict[str, int]:
        """{partition → its end in Kafka}.

        Raises:
            BrokerError: Kafka can't be asked, as by a rebuild.
        """
        if self._context.ends is not None:
            return {
                self._partition(topic.topic, number): end
                for topic in self._topics
                for number, end in self._context.ends(topic.topic).items()
            }
        if not self._context.bootstrap:
            raise BrokerError("Kafka has no part in this run", code="KAFKA_NOT_IN_RUN")
        now, (asked, ends) = self._context.now(), self._ends
        if abs(now - asked) > _FRESH:  # by the clock: a monotonic one stands while the machine sleeps
            client = kafka.client_options(self._context.project.conf, self._context.bootstrap)
            ends = {
                self._partition(topic.topic, number): end
                for topic in self._topics
                for number, end in end_offsets(client, topic.topic).items()
            }
            self._ends = (now, ends)
        return ends

    def _partition(self, topic: str, number: int | str) -> str:
        if topic.startswith(FILES):
            return f"{FILES_CLUSTER}/{topic.removeprefix(FILES)}/{number}"
        return f"{self._context.project.conf.cluster}/{topic}/{number}"


class Upstreams:
    """The ways from the partitions to all streams of a flow; a partition is `cluster/topic/number` after the
    stream's mark.

    Args:
        context: the run.
        marks: {stream → its mark}.
    """

    def __init__(self, context: Context, marks: Mapping[str, str]) -> None:
        self._ways = [(stream, mark, Upstream(context, stream)) for stream, mark in marks.items()]

    def known(self) -> set[str]:
        """The partitions that are reckoned with; see `Upstream.known`."""
        return {f"{mark}{each}" for _, mark, way in self._ways for each in way.known()}

    def left(self, positions: Mapping[str, Position], partitions: set[str]) -> dict[str, tuple[int, int]]:
        """How far the records of these partitions have come, and up to where there are any, to who has read
        the streams up to positions; see `Upstream.left`."""
        found: dict[str, tuple[int, int]] = {}
        for stream, mark, way in self._ways:
            own = {each.removeprefix(mark) for each in partitions if each.startswith(mark)}
            if own:
                found |= {f"{mark}{each}": far for each, far in way.left(positions[stream], own).items()}
        return found
