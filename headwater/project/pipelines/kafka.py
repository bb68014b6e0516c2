"""A topic, as `spark.readStream.format("kafka")` names it; how that is reached, the environment says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.project.pipelines.refusal import refuse

# Options that say nothing that a run does not do anyhow.
_NOTHING = {"startingoffsets": "earliest", "includeheaders": "true", "failondataloss": "true"}
_HINTS = {
    "startingoffsets": "leave it out; headwater run --start says where a new table begins",
    "subscribepattern": 'write .option("subscribe", "topic"), and a table for each topic',
    "assign": 'write .option("subscribe", "topic")',
}
_CONF = "the environment's file says how Kafka is reached: write it there, under kafka"


@dataclass(frozen=True)
class Read:
    """A read of a topic.

    Attributes:
        topic: its name.
        servers: the cluster that it names; "": it names none.
        most: rows of a batch.
    """

    topic: str
    servers: str = ""
    most: int | None = None


def read(options: Mapping[str, str]) -> Read:
    """What a read says.

    Args:
        options: those of the read, by their names in lower case.

    Raises:
        ProjectError: it reads no single topic, or says what is said elsewhere.
    """
    for name, value in options.items():
        known = name in ("kafka.bootstrap.servers", "subscribe", "maxoffsetspertrigger")
        if not known and _NOTHING.get(name) != value.lower():
            refuse(f"reads Kafka with {name} = {value}", _HINTS.get(name, _CONF), "KAFKA_READ_INVALID")
    topic = options.get("subscribe", "").strip()
    if not topic or "," in topic:
        refuse("reads from Kafka what is not one topic", _HINTS["subscribepattern"], "KAFKA_READ_INVALID")
    most = options.get("maxoffsetspertrigger")
    if most is not None and not most.isdigit():
        refuse(f"has maxOffsetsPerTrigger = {most}", "write a whole number", "KAFKA_READ_INVALID")
    return Read(topic, options.get("kafka.bootstrap.servers", ""), int(most) if most else None)
