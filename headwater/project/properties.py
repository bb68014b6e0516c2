"""Table properties of SQL definitions: `headwater.*` set the definition, `delta.*` the Delta table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast, get_args

from headwater.errors import ProjectError, Where
from headwater.project.definitions import (
    Contract,
    Emit,
    Json,
    KafkaSink,
    Limits,
    OnError,
    Refresh,
    Sink,
    Table,
    debezium,
    kafka_sink,
    opensearch_sink,
    postgres_sink,
)

KNOWN = (
    "headwater.allowed_lateness",
    "headwater.cluster_by",
    "headwater.contract",
    "headwater.decode",
    "headwater.emit",
    "headwater.idle_timeout",
    "headwater.keys",
    "headwater.lookup",
    "headwater.max_rows_per_batch",
    "headwater.on_error",
    "headwater.opensearch",
    "headwater.opensearch.on",
    "headwater.parallelism",
    "headwater.postgres",
    "headwater.postgres.on",
    "headwater.publish",
    "headwater.publish.on",
    "headwater.publish.partitions",
    "headwater.refresh",
    "headwater.schema",
    "headwater.skew",
    "headwater.timestamp",
    "headwater.tombstones",
    "headwater.trigger",
    "headwater.wait_for",
)
_OF_DECODERS = (
    "headwater.decode",
    "headwater.schema",
    "headwater.contract",
    "headwater.timestamp",
    "headwater.tombstones",
)
_OF_TOPICS = ("headwater.max_rows_per_batch", "headwater.parallelism", "headwater.trigger")


def from_properties(table: Table, properties: Mapping[str, str]) -> Table:
    """`table` with its properties applied.

    Raises:
        ProjectError: an unknown property or a value that it can't have.
    """
    where = table.where
    _check(where, properties, KNOWN)
    if "headwater.wait_for" in properties and properties.get("headwater.emit") != "final":
        raise ProjectError(
            f"{where}: headwater.wait_for is said without headwater.emit = 'final'",
            code="PROPERTY_INVALID",
            where=where,
            hint="add that: else a row without a partner is there at once, and corrected when one comes",
        )
    for key in ("headwater.skew", "headwater.on_error"):
        if key in properties and "headwater.decode" not in properties:
            raise ProjectError(
                f"{where}: {key} is of a table that decodes",
                code="PROPERTY_INVALID",
                where=where,
                hint="say it there: what it is about is held back as it is decoded",
            )
    return replace(
        table,
        skew=properties.get("headwater.skew", table.skew),
        on_error=cast(OnError, _one_of(where, properties, "headwater.on_error", get_args(OnError))),
        keys=_columns(properties, "headwater.keys"),
        cluster_by=_columns(properties, "headwater.cluster_by"),
        emit=_emit(where, properties, "headwater.emit"),
        refresh=_refresh(where, properties),
        allowed_lateness=properties.get("headwater.allowed_lateness"),
        idle_timeout=properties.get("headwater.idle_timeout", table.idle_timeout),
        sinks=tuple(_sinks(table, properties)),
        decode=_decode(where, properties),
        lookup=properties.get("headwater.lookup", ""),
        limits=_limits(where, properties),
        properties={k: v for k, v in properties.items() if k.startswith("delta.")},
    )


def topic_limits(where: Where, properties: Mapping[str, str]) -> Limits:
    """The limits of a topic's table, which has no other properties.

    Raises:
        ProjectError: it has one, or a value that can't be.
    """
    _check(where, properties, _OF_TOPICS)
    return _limits(where, properties)


def _check(where: Where, properties: Mapping[str, str], known: Sequence[str]) -> None:
    passed = ", delta.*" if known is KNOWN else ""
    for key in properties:
        if key not in known and not (passed and key.startswith("delta.")):
            raise ProjectError(
                f"{where}: unknown table property '{key}'",
                code="UNKNOWN_PROPERTY",
                where=where,
                hint=f"known: {', '.join(known)}{passed}",
            )


def _limits(where: Where, properties: Mapping[str, str]) -> Limits:
    return Limits(
        parallelism=_whole(where, properties, "headwater.parallelism"),
        max_rows_per_batch=_whole(where, properties, "headwater.max_rows_per_batch"),
        trigger=properties.get("headwater.trigger"),
    )


def _decode(where: Where, properties: Mapping[str, str]) -> Json | None:
    """The decoder of a table: `headwater.decode`, and the arguments of `hw.json`."""
    said = {key: value for key, value in properties.items() if key in _OF_DECODERS}
    if not said:
        return None
    contract = said.get("headwater.contract", "evolve")
    wrong = [("headwater.decode", said.get("headwater.decode"), ("json", "debezium"))]
    wrong += [("headwater.contract", contract, get_args(Contract))]
    for key, value, known in wrong:
        if value not in known:
            raise ProjectError(
                f"{where}: {key} = '{value or ''}'",
                code="PROPERTY_INVALID",
                where=where,
                hint=f"known: {', '.join(known)}",
            )
    if "headwater.schema" not in said:
        raise ProjectError(
            f"{where}: headwater.decode needs the fields to take",
            code="PROPERTY_INVALID",
            where=where,
            hint="write 'headwater.schema' = 'hostname STRING, usage DOUBLE, …'",
        )
    if said["headwater.decode"] == "debezium":
        if of_json := [key for key in said if key not in ("headwater.decode", "headwater.schema")]:
            raise ProjectError(
                f"{where}: {of_json[0]} is of 'headwater.decode' = 'json'",
                code="PROPERTY_INVALID",
                where=where,
                hint="leave it out: Debezium's events say what they are",
            )
        return debezium(said["headwater.schema"])
    tombstones = _columns(said, "headwater.tombstones")
    return Json(
        said["headwater.schema"], cast(Contract, contract), said.get("headwater.timestamp"), tombstones
    )


def _sinks(table: Table, properties: Mapping[str, str]) -> Iterator[Sink]:
    for key, declare in _SINKS.items():
        on = _emit(table.where, properties, f"{key}.on")
        partitions = _whole(table.where, properties, f"{key}.partitions")
        if key in properties:
            sink = declare(table.name, properties[key], on)
            yield replace(sink, partitions=partitions) if partitions and isinstance(sink, KafkaSink) else sink
        elif of_sink := [each for each in properties if each.startswith(f"{key}.")]:
            raise ProjectError(
                f"{table.where}: {of_sink[0]} is said without {key}",
                code="PROPERTY_INVALID",
                where=table.where,
                hint=f"add '{key}' = '…', or leave it out",
            )


def _to_topic(table: str, topic: str, on: Emit) -> Sink:
    return kafka_sink(table, topic=topic, on=on)


def _to_postgres(table: str, place: str, on: Emit) -> Sink:
    """`place`: `connection`, or `connection.into`, as for the other stores."""
    connection, _, into = place.partition(".")
    return postgres_sink(table, connection=connection, into=into, on=on)


def _to_opensearch(table: str, place: str, on: Emit) -> Sink:
    connection, _, index = place.partition(".")
    return opensearch_sink(table, connection=connection, index=index, on=on)


_SINKS = {
    "headwater.publish": _to_topic,
    "headwater.postgres": _to_postgres,
    "headwater.opensearch": _to_opensearch,
}


def _columns(properties: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in properties.get(key, "").split(",") if name.strip())


def _emit(where: Where, properties: Mapping[str, str], key: str) -> Emit:
    return cast(Emit, _one_of(where, properties, key, get_args(Emit)))


def _refresh(where: Where, properties: Mapping[str, str]) -> Refresh:
    return cast(Refresh, _one_of(where, properties, "headwater.refresh", get_args(Refresh)))


def _one_of(where: Where, properties: Mapping[str, str], key: str, known: Sequence[str]) -> str:
    """The value of a property, of those that it can have; without it the first."""
    found = properties.get(key, known[0])
    if found not in known:
        raise ProjectError(
            f"{where}: {key} = '{found}'",
            code="PROPERTY_INVALID",
            where=where,
            hint=f"known: {', '.join(known)}",
        )
    return found


def _whole(where: Where, properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise ProjectError(
            f"{where}: {key} = '{text}'",
            code="PROPERTY_INVALID",
            where=where,
            hint="write a whole number of 1 or more",
        )
    return int(text)
