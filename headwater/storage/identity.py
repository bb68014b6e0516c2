"""Whose a commit is, and what it says of that in its table's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from headwater.common import times

Shares = dict[str, list[list[int]]]  # {rule → [rows seen, rows that fail], the oldest first}


@dataclass(frozen=True)
class Identity:
    """What a commit says of itself: whose it is, which one, and how far its flow has read.

    Attributes:
        flow: the table that it feeds, or the name of one of several flows into a table.
        generation: the table's life that it feeds.
        sequence: the batch's number in that life, from 0.
        consumed: per input, how far it has been read when this is committed.
        newest: Kafka's timestamp (epoch milliseconds, UTC) of the newest record in the table, where known.
        shares: what the windows of the suite's shares hold with this batch; see `quality.measure`.
        event_time: how far event time has come with this batch; see `headwater.planner.event_time`.
        rows: how many rows of its input the batch reads, where the input's log says; of a view, those that
            its query got.
        keys: of a view, by how many keys its changed rows were found; None: all of it was computed anew, and
            of other tables.
        clock: the time of the batch, UTC, ISO 8601: what every "now" in it means.
        topics: {topic of Kafka that it reads → Kafka's id of it}, where known.
        reached: of a table with a lookup, {partition → the last offset of which rows were told something}.
        definition: of a view, by which definition its rows are: the definition's fingerprint.
    """

    flow: str
    generation: int
    sequence: int
    consumed: dict[str, Any]
    newest: int | None = None
    shares: Shares = field(default_factory=dict)
    event_time: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    keys: int | None = None
    clock: str = ""
    topics: dict[str, str] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    definition: str = ""


def recorded(flows: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """What the flows have done once this is committed, if they had done `flows` before."""
    before = flows.get(identity.flow, {})
    newest = max((at for at in (before.get("newest"), identity.newest) if at is not None), default=None)
    mine = {one.name: getattr(identity, one.name) for one in fields(Identity) if one.name != "flow"}
    mine["newest"] = newest
    if "expired" in before:
        mine["expired"] = before["expired"]
    pinned = mine.pop("clock")
    if identity.rows and pinned:
        mine["seconds"] = round((times.now() - datetime.fromisoformat(pinned)).total_seconds(), 3)
    for rare in ("shares", "event_time", "rows", "topics", "reached", "definition"):
        if not mine[rare]:
            del mine[rare]
    if mine["keys"] is None:
        del mine["keys"]
    return {**flows, identity.flow: mine}
