"""Streams that are joined, analysed: how new rows find their partners, and which are late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame

from headwater.planner import joins
from headwater.planner.analysis import timing
from headwater.planner.analysis.analysed import Analysed
from headwater.planner.event_time import Lateness
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.project.watermarks import tolerance
from headwater.storage import stored


def analyse(
    project: Project, table: Table, found: Mapping[str, Analysed], judged: Analysed, marked: DataFrame
) -> Analysed:
    """A table of joined rows; where its rows without a partner are final, also when one waits no longer.

    Args:
        project: the definitions.
        table: its definition.
        found: the tables that are analysed.
        judged: what is known of it.
        marked: its query over inputs as `marked.frame` makes them.

    Raises:
        ProjectError: see `joins.find`; or a stream does not tell which of its rows are late.
    """
    streams = project.streams(table)
    if table.emit != "final":
        joined = joins.find(marked, table.sources, streams, table.where)
        return replace(judged, joins=joined.joins)
    for name in streams:
        timing.check(found[name].columns, table.event_times[name], name, table.where)
    joined = joins.find(marked, table.sources, streams, table.where, table.event_times)
    rows = timing.together(table, {name: found[name].columns for name in streams})
    return replace(
        judged,
        kind="final joins",
        joins=joined.joins,
        alone=joined.alone,
        lateness=Lateness(table.event_times[streams[0]], tolerance(table), session=True),
        late=stored.schema(timing.late(rows)),
    )
