"""Versions of live tables: what each has read, and which of them are a consistent cut.

A cut is a version of each table, chosen downstream first: what a table has read of another one of the cut is
no further than that one's version.
"""

from __future__ import annotations

from pathlib import Path

from headwater.project.load import Project
from headwater.storage import log
from headwater.storage.lake import Lake
from headwater.storage.ranges import Position


def choose(project: Project, live: Lake, names: list[str]) -> dict[str, int]:
    """{table → its version in a cut through these tables}, of those that are live.

    Args:
        project: the definitions.
        live: the lake.
        names: in the order of the graph.
    """
    places, found = live.places(), {}
    for name in reversed(names):
        if name in places:
            found[name] = log.head(places[name].path)
            while not whole(project, live, names, name, found[name]):
                found[name] -= 1
    return found


def whole(project: Project, live: Lake, names: list[str], name: str, version: int) -> bool:
    """Whether a version has read none of these tables in part of a commit: their files are cut otherwise."""
    if version <= 0:
        return True
    places = live.places()
    return all(
        stream not in names
        or (stream in places and at.files == 0 and whole(project, live, names, stream, at.version))
        for (_, stream), at in positions(project, name, log.read(places[name].path, version)).items()
    )


def is_there(project: Project, live: Lake, name: str, version: int) -> bool:
    """Whether what a version has read can be read up to there: logs lose their beginning."""
    places = live.places()
    if version < log.first(places[name].path):
        return False
    for (_, stream), at in positions(project, name, log.read(places[name].path, version)).items():
        upto = at.version if at.snapshot is None else at.snapshot
        if stream not in places or upto < 0:
            continue
        if upto < log.first(places[stream].path):
            return False
        if stream in project.tables and not is_there(project, live, stream, upto):
            return False
    return True


def positions(project: Project, name: str, commit: log.Commit) -> dict[tuple[str, str], Position]:
    """{(flow, input) → how far it has been read}, of the table `name`."""
    found = {}
    for flow, streams in inputs(project, name).items():
        consumed = commit.flows.get(flow, {}).get("consumed", {})
        for stream in streams:
            at = consumed.get(stream)
            found[flow, stream] = Position.parse(at) if at else Position(generation=0)
    return found


def inputs(project: Project, name: str) -> dict[str, list[str]]:
    """{flow into the table `name` → the tables that it follows}."""
    table = project.tables[name]
    return {flow.name: [*project.streams(flow)] for flow in table.flows or (table,)}


def is_at(table: Path, at: Position, upto: Position) -> bool:
    """Whether no commit has changed a table between two positions."""
    if at.reaches(upto):
        return True
    if at.snapshot is not None:
        return False
    if at.version < 0 and log.first(table) > 0:  # who begins now begins with a snapshot
        return not log.snapshot(table, upto.version if upto.snapshot is None else upto.snapshot)
    for commit in log.commits(table, after=at.version, upto=upto.version + (upto.files > 0)):
        first = at.files if commit.version == at.version + 1 else 0
        last = upto.files if commit.version == upto.version + 1 else None
        if commit.added[first:last] or commit.removed:
            return False
    return True
