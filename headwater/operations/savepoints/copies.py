"""A lake as a lake of its own in another folder: to try a change beside it, or to have it twice.

    <copy>/              a lake: all tables, bronze too, whose commits say where each source goes on in Kafka
    <copy>/_copy.json    of which lake it is a copy, and since when; as long as that is there, nothing of
                         the copy leaves it: `headwater run` leaves alerts and sinks out

The copy is a consistent cut (`savepoints.cut`), and goes on from there by itself. However long copying takes,
maintenance removes nothing meanwhile. Its tables have ids of their own: a store that holds the rows of one of
the two refuses those of the other.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from headwater.common import times
from headwater.common.values import plain
from headwater.errors import LakeError, ProjectError
from headwater.operations.savepoints import cut as cuts
from headwater.operations.savepoints.cut import lakes
from headwater.operations.savepoints.cut.whole import whole
from headwater.project.load import Project
from headwater.runtime import failpoints
from headwater.storage import erasure, json_file, past
from headwater.storage.lake import Lake

MARK = "_copy.json"


@dataclass(frozen=True)
class Copy:
    """Of which lake a lake is a copy, when it was made (UTC), and whether its files are its own."""

    of: str
    created_at: datetime
    full: bool


def copy(project: Project, target: Path, *, full: bool = False) -> dict[str, int]:
    """Copy a lake, while flows go on; {table → the version that was copied}.

    Args:
        project: whose lake.
        target: a folder that is not there yet, or empty.
        full: whether all files are copied; else they are linked, where that folder's file system can.

    Raises:
        ProjectError: the folder is in the lake, or it is there and holds something.
        LakeError: there is nothing to copy; or an erase is under way.
        LeaseError: another process is copying to it.
        CommitError: a file was removed meanwhile.
    """
    lake, target = Lake(project.conf.lake), target.resolve()
    erasure.refuse(lake)
    if not lake.places():
        raise LakeError(
            f"{lake.root}: there is nothing to copy yet",
            code="LAKE_EMPTY",
            file=lake.root,
            hint="run: headwater run --once",
        )
    if target.is_relative_to(lake.root):
        raise ProjectError(
            f"{target} is in the lake itself",
            code="FOLDER_TAKEN",
            file=target,
            hint="name a folder beside it",
        )
    with whole(target) as part, past.keeping(lake):
        erasure.refuse(lake)  # one that begins now finds that the past is kept
        cut, into = cuts.choose(project, lake), Lake(part)
        failpoints.reach("chosen", "copy")
        lakes.make(cut, lake, into, full=full, own_ids=True)
        made = Copy(str(lake.root), times.now(), full)
        json_file.write(part / MARK, plain(asdict(made)), indent=1)
        failpoints.reach("made", "copy")
    return {name: chosen.version for name, chosen in cut.items()}


def mark(lake: Path) -> Copy | None:
    """What a lake is a copy of; None where it is none, or is one no more."""
    try:
        hint = "this lake is a copy; remove the file if its alerts and sinks may run"
        kept = json_file.read(lake / MARK, hint=hint)
    except FileNotFoundError:
        return None
    return Copy(kept["of"], datetime.fromisoformat(kept["created_at"]), kept["full"])
