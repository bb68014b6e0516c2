"""How each table is kept up to date, for people: `headwater explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from headwater.planner import analysis, newest, partners
from headwater.planner.analysis import Analysed
from headwater.planner.groups import Groups
from headwater.planner.reach import Hop, Reach, Touch
from headwater.project.definitions import Lookup, Table
from headwater.project.load import Project
from headwater.storage.names import stage_name, state_name

_WAYS = {
    "rows": "each new row once",
    "joined rows": "new rows of each stream, with all of the others that they are joined with",
    "final joins": "pairs of new rows, and each row without a partner, once none can come any more",
    "changed rows": "a row for a row of its input, as these change",
    "aggregate": "partial results of new rows, merged by its keys",
    "final windows": "each window once, when it is over",
    "process": "each key's new rows in turn",
}
_NEWEST = {
    1: "of each key that has new changes the last one is found among those from the first of these on",
    2: "of each key that has new changes the versions from the first of these on are computed anew",
}


@dataclass(frozen=True)
class Touched:
    """Which rows a change of an input touches.

    Attributes:
        source: the input.
        columns: the columns of the view by which these rows are found.
        through: what is asked on the way from the changed row to them, each as `table.column → column`.
        needs: {table → the columns by which those of its rows are found that are read for them}.
    """

    source: str
    columns: tuple[str, ...]
    through: tuple[str, ...]
    needs: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Explained:
    """How a table is kept up to date.

    Attributes:
        table: its name.
        way: what a batch does, in a few words.
        why: of a view all of which is computed anew: what of its query asks for that.
        touched: of what is kept by the rows that changes touch, the view or its inner part: which, for each
            reading of an input.
        beside: {table that is kept beside it → what it holds}.
        joins: of streams that are joined, what new rows of one read of the others, each in a line.
        snapshots: what is read as it is, each in a line.
        lookup: what is asked of another system as rows come; "": nothing is.
    """

    table: str
    way: str
    why: str = ""
    touched: tuple[Touched, ...] = ()
    beside: dict[str, str] = field(default_factory=dict)
    joins: tuple[str, ...] = ()
    lookup: str = ""
    snapshots: tuple[str, ...] = ()


def explain(spark: SparkSession, project: Project, names: Sequence[str]) -> list[Explained]:
    """How tables are kept up to date; by default all that are derived.

    Raises:
        ProjectError: an unknown table; or as of `headwater.planner.analysis.analyse`.
    """
    for name in names:
        project.definition(name)
    analysed = analysis.analyse(spark, project, names)
    return [
        _explained(project, project.tables[name], analysed)
        for name in names or project.tables
        if name in project.tables
    ]


def _explained(project: Project, table: Table, found: Mapping[str, Analysed]) -> Explained:
    analysed = found[table.name]
    if analysed.kind != "view":
        joined = [found[flow.name] for flow in table.flows or (table,)]
        lines = tuple(
            line for each in joined if each.joins for line in partners.lines(each.joins, each.alone)
        )
        asked = _asked(project.lookups[table.lookup]) if table.lookup else ""
        read = dict.fromkeys(name for flow in table.flows or (table,) for name in flow.snapshots)
        whole = tuple(
            f"{name} as it is when a batch is begun: what changes later corrects nothing" for name in read
        )
        whole += tuple(
            f"{name} as it is when {flow.name} first finds rows there: it does not read what comes later"
            for flow in table.flows or (table,)
            for name in (project.streams(flow) if flow.once else ())
        )
        return Explained(table.name, _WAYS[analysed.kind], joins=lines, lookup=asked, snapshots=whole)
    if analysed.groups is not None:
        return _of_groups(table, analysed, analysed.groups)
    reach = analysed.reach
    touched = tuple(_touches(reach)) if reach else ()
    if table.cdc is not None and newest.are_enough(table.cdc, found[table.sources[0]].columns):
        return Explained(table.name, _NEWEST[table.cdc.scd])
    if reach is None:
        return Explained(table.name, "all of it is computed anew", analysed.anew)
    return Explained(table.name, "the rows that changes touch are computed anew", touched=touched)


def _of_groups(table: Table, analysed: Analysed, kept: Groups) -> Explained:
    """How a view is kept by its groups."""
    stage, state = analysed.stage, state_name(table.name)
    beside = {state: "what the groups that its query makes of rows are made of"}
    of, touched = kept.source, list[Touched]()
    if stage is not None:
        of = stage_name(table.name)
        inner = "what the inner part gives, of which the rows that changes touch are computed anew"
        if stage.groups is not None:
            inner = f"what the groups of its inner part are made of, of rows of {stage.groups.source}"
        beside, touched = {of: inner, **beside}, list(_touches(stage.reach)) if stage.reach else []
    above = list(_touches(analysed.reach)) if analysed.reach else []
    if any(
        each.through or {*each.needs} != {state} or {*each.needs[state]} != {*kept.names} for each in above
    ):
        touched += above  # of more than the groups themselves a row of the view is made
    way = f"what new rows of {of} add to their groups, and rows that went take from them"
    return Explained(table.name, way, touched=tuple(touched), beside=beside)


def _asked(lookup: Lookup) -> str:
    """What is asked of a lookup, in a line."""
    return f"asks {lookup.name} by {', '.join(lookup.keys)}, again after {lookup.ttl}"


def _touches(reach: Reach) -> Iterator[Touched]:
    return (_touched(reach, read, touch) for read, touch in reach.touches.items())


def _through(reach: Reach, hop: Hop) -> str:
    found = f"{reach.sources[hop.read]}.{hop.match} → {hop.take}"
    if hop.within is None:
        return found
    start, end = hop.within.start, hop.within.end
    bounds = " and ".join([f"from {start} on"] * bool(start) + [f"up to {end}"] * bool(end))
    return f"{found} ({hop.within.column} {bounds})"


def _touched(reach: Reach, read: int, touch: Touch) -> Touched:
    hops = next(iter(touch.columns.values())).hops
    needs: dict[str, tuple[str, ...]] = {}
    for of, need in touch.needs.items():
        name = reach.sources[of]
        needs[name] = tuple(dict.fromkeys((*needs.get(name, ()), *(column for column, _ in need.columns))))
    return Touched(
        reach.sources[read],
        tuple(touch.columns),
        tuple(_through(reach, hop) for hop in hops),
        needs,
    )
