"""How far the records of each partition of Kafka have come on their way to a table's flow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise

from headwater import kafka, log
from headwater.broker import end_offsets
from headwater.definitions import Topic
from headwater.flows.context import Context
from headwater.ranges import Position

_FRESH = 1.0  # seconds for which Kafka's answer is good enough


class Upstream:
    """The way from Kafka's partitions to the table `stream`; a partition is `cluster/topic/number`."""

    def __init__(self, context: Context, stream: str) -> None:
        self._context = context
        self._stream = stream
        self._ends: tuple[float, dict[str, int]] = (0.0, {})

    def known(self) -> list[str]:
        """The partitions of which bronze has had records."""
        topic = self._way()[-1]
        place = self._context.lake.places().get(topic)
        head = log.head(place.path) if place else -1
        return [each for each, offset in self._offsets(topic, head).items() if offset > 0]

    def quiet(self, position: Position, partitions: set[str]) -> set[str]:
        """Which of these partitions have nothing on its way to who has read the stream up to `position`.

        Raises:
            BrokerError: Kafka can't be asked.
        """
        come, ends = self._delivered(position), self._end_offsets()
        return {each for each in partitions if come.get(each, 0) >= ends.get(each, 0)}

    def _way(self) -> list[str]:
        """The tables from the stream up to that of a topic."""
        project, way = self._context.project, [self._stream]
        while way[-1] not in project.topics:
            way.append(next(s for s in project.tables[way[-1]].sources if s not in project.references))
        return way

    def _delivered(self, position: Position) -> Mapping[str, int]:
        """{partition → the offset up to which all has come to `position`}."""
        places, at = self._context.lake.places(), position.version
        way = self._way()
        for name, source in pairwise(way):
            if at < 0 or name not in places:
                return {}
            consumed = log.read(places[name].path, at).flows.get(name, {}).get("consumed", {})
            at = Position.parse(consumed[source]).version if source in consumed else -1
        return self._offsets(way[-1], at)

    def _offsets(self, bronze: str, version: int) -> dict[str, int]:
        place = self._context.lake.places().get(bronze)
        if version < 0 or place is None:
            return {}
        topic = self._topic(bronze).topic
        consumed = log.read(place.path, version).flows.get(bronze, {}).get("consumed", {})
        return {self._partition(topic, number): end for number, end in consumed.get(topic, {}).items()}

    def _end_offsets(self) -> dict[str, int]:
        """{partition → its end in Kafka}."""
        asked, ends = self._ends
        if time.monotonic() - asked > _FRESH:
            topic = self._topic(self._way()[-1]).topic
            client = kafka.client_options(self._context.project.conf, self._context.bootstrap)
            ends = {self._partition(topic, n): end for n, end in end_offsets(client, topic).items()}
            self._ends = (time.monotonic(), ends)
        return ends

    def _topic(self, bronze: str) -> Topic:
        return self._context.project.topics[bronze]

    def _partition(self, topic: str, number: int | str) -> str:
        return f"{self._context.project.conf.cluster}/{topic}/{number}"
