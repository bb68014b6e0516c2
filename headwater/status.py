"""How far each flow is behind, and how fresh its table is: for the screen, and for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater import log, ranges
from headwater.broker import list_topics
from headwater.definitions import Table
from headwater.lake import Lake
from headwater.progress import Board
from headwater.project import Project
from headwater.ranges import Position


@dataclass(frozen=True)
class Status:
    """One flow, now.

    Attributes:
        flow: the table, alert or sink.
        state: starting, running, waiting, failed or done.
        rows_per_second: rows read per second, over the last five seconds.
        rows: rows written since the run began.
        quarantined: rows quarantined since the run began.
        lag: rows of its input that it has not read; None where that is not known.
        freshness: seconds from Kafka's timestamp of the newest record to its being readable in the
            table, in the last batch; None before the first.
    """

    flow: str
    state: str
    rows_per_second: float
    rows: int
    quarantined: int
    lag: int | None
    freshness: float | None


def snapshot(project: Project, board: Board, client: Mapping[str, Any]) -> list[Status]:
    """Every flow that the board knows, in the order of the graph."""
    lake = Lake(project.conf.lake)
    ends = {topic.name: topic.end for topic in list_topics(dict(client))}
    order = {name: at for at, name in enumerate([*project.names(), *project.alerts, *project.sinks])}
    found = []
    for name in sorted(board.flows, key=lambda name: order.get(name, len(order))):
        flow = board.flows[name]
        last = flow.recent[-1] if flow.recent else None
        found.append(
            Status(
                flow=name,
                state=flow.state,
                rows_per_second=round(flow.rate(), 1),
                rows=flow.rows_out,
                quarantined=flow.quarantined,
                lag=_lag(project, lake, name, ends),
                freshness=None if last is None else last.freshness(),
            )
        )
    return found


def _lag(project: Project, lake: Lake, name: str, ends: Mapping[str, int]) -> int | None:
    places = lake.places()
    if name not in places:
        return None
    mine = log.flows(places[name].path).get(name)
    if name in project.topics:
        topic = project.topics[name].topic
        read = sum(mine["consumed"].get(topic, {}).values()) if mine else 0
        return max(0, ends.get(topic, 0) - read)
    table = project.definition(name)
    assert isinstance(table, Table)
    if table.view:
        return None  # it reads whole tables
    committed, lag = log.flows(places[name].path), 0
    for flow in table.flows or (table,):
        stream = next(s for s in flow.sources if s not in project.references)
        if stream not in places:
            return None
        mine = committed.get(flow.name)
        start = Position.parse(mine["consumed"][stream]) if mine else Position(generation=1)
        lag += ranges.lag(places[stream].path, start)
    return lag
