"""What definitions name that lies outside the lake is the environment's: servers, buckets, connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.common import near
from headwater.errors import ProjectError
from headwater.errors.several import Collected
from headwater.project.bucket import bucket_of
from headwater.project.conf import Conf
from headwater.project.definitions import Files, Sink, StoreSink, Topic


def buckets(wrong: Collected, files: Mapping[str, Files], known: Sequence[str], conf: Path) -> None:
    """Every bucket that files come from is one of the environment."""
    for bronze in files.values():
        name, where = bucket_of(bronze.pattern), bronze.where
        if name and name not in known:  # a pattern without one is wrong by itself
            error = ProjectError(
                f"{where} takes files of the bucket '{name}', of which the environment says nothing",
                code="UNKNOWN_BUCKET",
                where=where,
                hint=f"add it under 's3' in {conf}; {near.hint(name, [*known], listed=False)}",
            )
            wrong.add(error)


def clusters(wrong: Collected, topics: Mapping[str, Topic], conf: Conf, file: Path) -> None:
    """A topic whose text names its cluster is of the environment's."""
    own = conf.kafka.get("bootstrap.servers", "") if isinstance(conf.kafka, dict) else conf.kafka
    for topic in topics.values():
        if topic.servers not in ("", own, conf.cluster):
            error = ProjectError(
                f"{topic.where} is of the Kafka at {topic.servers}, and the environment has {own}",
                code="OTHER_CLUSTER",
                where=topic.where,
                hint="leave the servers out here, or write in "
                f"{file}: kafka: {{bootstrap.servers: '{topic.servers}'}}",
            )
            wrong.add(error)


def connections(
    wrong: Collected, sinks: Mapping[str, Sink], known: Mapping[str, list[str]], conf: Path
) -> None:
    """Every connection that a sink names is one of the environment: {store → names}."""
    for sink in sinks.values():
        if isinstance(sink, StoreSink) and sink.connection not in known[sink.store]:
            meant = near.hint(sink.connection, known[sink.store], listed=False)
            error = ProjectError(
                f"{sink.where} is kept in '{sink.connection}', which is no connection",
                code="UNKNOWN_CONNECTION",
                where=sink.where,
                hint=f"add it under '{sink.store}' in {conf}; {meant}",
            )
            wrong.add(error)
