"""How far the records of each partition of Kafka have come on their way to a table's flow."""

from __future__ import annotations

import time

from headwater import kafka, log
from headwater.broker import end_offsets
from headwater.flows.context import Context
from headwater.ranges import Position

_FRESH = 1.0  # seconds for which Kafka's answer is good enough


class Upstream:
    """The ways from Kafka's partitions to the table `stream`; a partition is `cluster/topic/number`."""

    def __init__(self, context: Context, stream: str) -> None:
        self._context = context
        self._stream = stream
        topics = context.project.topics
        self._topics = [topics[name] for name in context.project.above([stream]) if name in topics]
        self._ends: tuple[float, dict[str, int]] = (0.0, {})

    def known(self) -> list[str]:
        """The partitions of which bronze has had records."""
        places = self._context.lake.places()
        found: dict[str, int] = {}
        for topic in self._topics:
            if topic.name in places:
                found |= self._come(topic.name, log.head(places[topic.name].path))
        return [partition for partition, offset in found.items() if offset > 0]

    def quiet(self, position: Position, partitions: set[str]) -> set[str]:
        """Which of these partitions have nothing on its way to who has read the stream up to `position`.

        Raises:
            BrokerError: Kafka can't be asked.
        """
        come, ends = self._come(self._stream, position.version), self._end_offsets()
        return {each for each in partitions if come.get(each, 0) >= ends.get(each, 0)}

    def _come(self, table: str, version: int) -> dict[str, int]:
        """{partition → the offset up to which its records have come to a version of a table}."""
        places, project = self._context.lake.places(), self._context.project
        if version < 0 or table not in places:
            return {}
        flows = log.read(places[table].path, version).flows
        if table in project.topics:
            topic = project.topics[table].topic
            ends = flows[table]["consumed"].get(topic, {}) if table in flows else {}
            return {self._partition(topic, number): end for number, end in ends.items()}
        found: dict[str, int] = {}
        for flow in flows.values():
            for source, position in flow["consumed"].items():
                if source in project.topics or source in project.tables:
                    for each, end in self._come(source, Position.parse(position).version).items():
                        found[each] = min(end, found.get(each, end))
        return found

    def _end_offsets(self) -> dict[str, int]:
        """{partition → its end in Kafka}."""
        asked, ends = self._ends
        if time.monotonic() - asked > _FRESH:
            client = kafka.client_options(self._context.project.conf, self._context.bootstrap)
            ends = {
                self._partition(topic.topic, number): end
                for topic in self._topics
                for number, end in end_offsets(client, topic.topic).items()
            }
            self._ends = (time.monotonic(), ends)
        return ends

    def _partition(self, topic: str, number: int | str) -> str:
        return f"{self._context.project.conf.cluster}/{topic}/{number}"
