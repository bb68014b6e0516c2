"""A topic, as `spark.readStream.format("kafka")` names it."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.project.definitions import Limits
from headwater.project.pipelines.refusal import refuse

# What follows from the environment, and what is so anyway: `headers` is a column, and a gap stops the flow.
_PASSED_OVER = ("kafka.", "includeheaders", "failondataloss", "minpartitions", "groupidprefix")


def topic(options: Mapping[str, str]) -> str:
    """The topic that a read subscribes to.

    Args:
        options: those of the read, by their names in lower case; connections are the environment's.

    Raises:
        ProjectError: it reads no single topic, or reads it in a way that a bronze table does not.
    """
    found = options.get("subscribe", "").strip()
    if not found or "," in found:
        refuse(
            "reads from Kafka what is not one topic",
            'write .option("subscribe", "topic"), and a table for each topic',
            "KAFKA_READ_INVALID",
        )
    if options.get("startingoffsets", "earliest") != "earliest":
        refuse(
            f"starts at {options['startingoffsets']}",
            "leave it out: a run that begins a table says so, by headwater run --start",
            "KAFKA_READ_INVALID",
        )
    known = ("subscribe", "startingoffsets", "maxoffsetspertrigger")
    for name in options:
        if name not in known and not name.startswith(_PASSED_OVER):
            refuse(
                f"gives Kafka the option {name}",
                "leave it out; connections are said under `kafka` in conf/<env>.yaml",
                "KAFKA_READ_INVALID",
            )
    return found


def limits(options: Mapping[str, str]) -> Limits:
    """What bounds a batch of the read."""
    most = options.get("maxoffsetspertrigger", "")
    if most and not most.isdigit():
        refuse(f"has maxOffsetsPerTrigger = {most}", "write a whole number", "KAFKA_READ_INVALID")
    return Limits(max_rows_per_batch=int(most) if most else None)
