"""The topics that definitions ask for."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.connectors.kafka.topics import Topic
from headwater.project import definitions


def topics(
    read: Iterable[definitions.Topic], alerts: Iterable[definitions.Alert], sinks: Iterable[definitions.Sink]
) -> list[Topic]:
    """Those that bronze tables read, and those that alerts and sinks write."""
    return [
        *(Topic(each.topic, each.partitions, each.compacted) for each in read),
        *(Topic(alert.topic, alert.partitions) for alert in alerts),
        *(Topic(s.topic, s.partitions) for s in sinks if isinstance(s, definitions.KafkaSink)),
    ]
