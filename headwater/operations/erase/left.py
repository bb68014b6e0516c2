"""What an erase can't reach: said, with who lets go of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors import kafka
from headwater.connectors.kafka import broker
from headwater.errors import BrokerError
from headwater.flows import marks
from headwater.operations.validation.results import TABLE as RESULTS
from headwater.project.definitions import KafkaSink
from headwater.project.load import Project
from headwater.storage.lake import Lake
from headwater.storage.names import FILES_CLUSTER


def left(
    project: Project, lake: Lake, places: pa.Table, tables: Collection[str], sinks: Mapping[str, bool]
) -> list[str]:
    """What may still have the records, or what was made of them, in words.

    Args:
        project: the definitions.
        lake: where the tables lie.
        places: where the records stood.
        tables: those that had something of the records.
        sinks: those that were sent what is other now, and whether their rows have keys.
    """
    from_files = len(places.filter(pc.equal(places["cluster"], FILES_CLUSTER)))
    found = list(_of_kafka(project, places))
    if from_files:
        found.append(f"{from_files:,} of the records came from files, which are as they were")
    topics = _topics(places)
    for alert in project.alerts.values():
        if project.topics[alert.source].topic in topics:
            found.append(f"alerts that were sent to the topic {alert.topic}, until its retention ends")
    for name, keyed in sinks.items():
        sink = project.sinks[name]
        if isinstance(sink, KafkaSink):
            found.append(f"what was sent to {sink.topic}, until that is compacted or its retention ends")
        elif not keyed:
            found.append(f"rows that {name} has appended: they have no keys to remove them by")
    for sink in (each for each in project.off.values() if each.table in tables):
        found.append(f"what {sink.name} has been sent: it is off; remove there what was made of the records")
    for name in _former(project, lake, tables):
        found.append(f"what {name} has been sent, a sink that the project has no more: remove it there")
    if RESULTS in lake.places():
        found.append(f"values that validations observed ({RESULTS}, and the Data Docs)")
    found.append("copies and backups of the lake, reference tables, and what was exported")
    return found


def _former(project: Project, lake: Lake, tables: Collection[str]) -> list[str]:
    """The sinks of tables that were sent something, and are not declared any more."""
    known = {*project.sinks, *(each.name for each in project.off.values())}
    names = {name for table in tables for name in marks.sinks_of(lake, table)} - known
    return [name for name in sorted(names) if marks.sent(lake, name).is_set()]


def _of_kafka(project: Project, places: pa.Table) -> Iterator[str]:
    """What the topics themselves still have."""
    own = places.filter(pc.not_equal(places["cluster"], FILES_CLUSTER))
    for topic in _topics(places):
        mine = own.filter(pc.equal(own["topic"], topic))
        try:
            kept = _kept(project, topic)
        except BrokerError as e:
            yield f"the topic {topic}, which could not be asked ({e})"
            continue
        if kept is None:
            continue
        stands = [
            at >= kept.first.get(partition, 0)
            for partition, at in zip(mine["partition"].to_pylist(), mine["offset"].to_pylist(), strict=True)
        ]
        if any(stands):
            yield f"{sum(stands):,} of the records in the topic {topic}, {_until(kept)}"


def _topics(places: pa.Table) -> list[str]:
    """The topics of Kafka's own records."""
    return sorted(set(places.filter(pc.not_equal(places["cluster"], FILES_CLUSTER))["topic"].to_pylist()))


def _kept(project: Project, topic: str) -> broker.Kept | None:
    conf = project.conf
    if conf.kafka == "embedded" and kafka.embedded_broker(project.root, conf).status().bootstrap is None:
        return None  # it was never started
    client = kafka.client_options(conf, kafka.ensure_running(project.root, conf))
    return broker.kept(client, topic)


def _until(kept: broker.Kept) -> str:
    """Until when a topic has its records."""
    ends = []
    if "compact" in kept.policy:
        ends.append("a record without a value takes their key's place (it is compacted)")
    if "delete" in kept.policy and kept.milliseconds >= 0:
        ends.append(f"{timedelta(milliseconds=kept.milliseconds)} after they came (its retention.ms)")
    return "until " + ", or ".join(ends) if ends else "for ever (it has no retention)"
