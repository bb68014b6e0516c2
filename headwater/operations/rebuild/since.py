"""From when on a rebuild reads its history: all of it, what is left of it, or what came since a time.

Files of a table that is only appended to say when their rows came (`log.DataFile.order`), so a rebuild that
reads from a time on begins with the first file that has rows of that time or later: maintenance may have put
some that came shortly before into the same file, and these are read, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from headwater.common import times
from headwater.errors import LakeError, ProjectError
from headwater.operations.rebuild.versions import inputs
from headwater.planner.changes import shortened
from headwater.project.load import Project
from headwater.storage import log
from headwater.storage.lake import Lake, Place
from headwater.storage.ranges import Position
from headwater.storage.summary import changes_in_place

EARLIEST = "earliest"  # what is left of the history, though it may not be whole


def history_of(project: Project, names: Sequence[str]) -> list[str]:
    """The tables that are read by some of these, and are none of them."""
    read = {source for name in names for source in project.tables[name].sources}
    return [name for name in project.names() if name in read - {*names}]


def check_whole(lake: Lake, project: Project, names: Sequence[str], history: Sequence[str]) -> None:
    """Check that no live table would lose rows because its history is not whole any more.

    Raises:
        LakeError: one would.
    """
    gone = shortened(lake, history)
    for name in (name for name in names if name in lake.places()):
        for source in (source for source in project.tables[name].sources if source in gone):
            raise LakeError(
                f"{gone[source]}, so {name} would lose what was made of them",
                code="HISTORY_GONE",
                table=name,
                hint=f"headwater rebuild --from {EARLIEST} builds it from what is left, headwater "
                "savepoint create keeps what is there now",
            )


def positions(
    project: Project, lake: Lake, names: Sequence[str], history: Sequence[str], since: str
) -> dict[str, dict[str, int]]:
    """{input → the position to begin with}, of those that are not read from their start.

    Args:
        project: the definitions.
        lake: the lake.
        names: the tables that are rebuilt.
        history: the tables that are read.
        since: `earliest`, a time (ISO 8601, UTC unless it names a zone), or the first version to read, where
            one table is read; "" as `earliest`.

    Raises:
        ProjectError: it is none of these, the input has no such version, or one of the tables can't be made
            of a part: a view, what rows wait for, or what reads a table whose rows change in place.
    """
    if since in ("", EARLIEST):
        return {}
    for table in (project.tables[name] for name in names):
        whole = [source for source in table.sources if source in history]
        if whole and (table.view or table.event_times or table.process):
            what = "is a view of the whole of" if table.view else "finds rows that wait among all of"
            raise ProjectError(
                f"--from {since}: {table.name} {what} {', '.join(whole)}",
                code="START_NOT_POSSIBLE",
                table=table.name,
                hint="leave --from away, or rebuild these, too",
            )
    live = [lake.places()[name] for name in history if name in lake.places()]
    for place in live:
        if changes_in_place(place):
            raise ProjectError(
                f"--from {since}: rows of {place.name}, which is read, change in place, so no part of them "
                "is what came since",
                code="START_NOT_POSSIBLE",
                table=place.name,
                hint="rebuild it too, or leave --from away",
            )
    if since.isdecimal():
        return _from_version(live, int(since))
    try:
        moment = times.parse(since)
    except ValueError:
        raise ProjectError(
            f"--from {since} is no time and no version",
            code="TIME_INVALID",
            hint=f"write {EARLIEST}, a time like 2026-01-31T06:00:00Z, or a version",
        ) from None
    return {place.name: _from_time(place, moment) for place in live}


def begin_of(
    project: Project, name: str, begin: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, Mapping[str, int]]]:
    """{flow into a table → input → the position to begin with}, of those that are read by one."""
    found = {
        flow: {stream: begin[stream] for stream in streams if stream in begin}
        for flow, streams in inputs(project, name).items()
    }
    return {flow: read for flow, read in found.items() if read}


def _from_version(inputs: Sequence[Place], version: int) -> dict[str, dict[str, int]]:
    if len(inputs) != 1:
        names = ", ".join(place.name for place in inputs) or "none"
        raise ProjectError(
            f"--from {version} is a version of one table, but {len(inputs)} are read ({names})",
            code="VERSION_AMBIGUOUS",
            hint="write a time",
        )
    place = inputs[0]
    first, head = log.first(place.path), log.head(place.path)
    if not first <= version <= head:
        raise ProjectError(
            f"--from {version}: {place.name} has the versions {first} to {head}",
            code="UNKNOWN_VERSION",
            table=place.name,
        )
    return {place.name: Position(place.generation, version - 1).json()}


def _from_time(place: Place, moment: datetime) -> dict[str, int]:
    head = log.head(place.path)
    orders = [file.order for file in log.snapshot(place.path, head)]
    before = sum(order < moment.timestamp() * 1000 for order in orders)
    return Position(place.generation, files=before, snapshot=head).json()
