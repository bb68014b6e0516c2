"""Whose a commit is, and what it says of that in its table's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from headwater.common import times


@dataclass(frozen=True)
class Identity:
    """What a commit says of itself: whose it is, which one, and how far its flow has read.

    `newest` is Kafka's timestamp (epoch milliseconds, UTC) of the newest record that is in the table,
    `shares` what the windows of its suite's shares hold, `event_time` how far event time has come, `rows` how
    many rows of its input the batch has read, `clock` its time, and `topics` {topic → Kafka's id
    of it} of those that it has read.
    """

    flow: str
    generation: int
    sequence: int
    consumed: dict[str, Any]
    newest: int | None = None
    shares: dict[str, list[list[int]]] = field(default_factory=dict)
    event_time: dict[str, Any] = field(default_factory=dict)
    rows: int = 0
    clock: str = ""
    topics: dict[str, str] = field(default_factory=dict)


def recorded(flows: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """What the flows have done once this is committed, if they had done `flows` before."""
    before = flows.get(identity.flow, {})
    newest = max((at for at in (before.get("newest"), identity.newest) if at is not None), default=None)
    mine = {name: value for name, value in asdict(identity).items() if name != "flow"}
    mine["newest"] = newest
    if "expired" in before:
        mine["expired"] = before["expired"]
    pinned = mine.pop("clock")
    if identity.rows and pinned:
        mine["seconds"] = round((times.now() - datetime.fromisoformat(pinned)).total_seconds(), 3)
    for rare in ("shares", "event_time", "rows", "topics"):
        if not mine[rare]:
            del mine[rare]
    return {**flows, identity.flow: mine}
