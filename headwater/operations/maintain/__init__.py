"""Maintenance: what keeps a table's files few and its log short, beside the flow that writes it.

1. **Compact**: small files are put together (`headwater.operations.maintain.compact`).
2. **Expire**: rows go that were kept as long as the table's retention says
   (`headwater.operations.maintain.expire`).
3. **Clean**: what only versions hold that are older than is kept, and that nobody reads any more, is removed
   (`headwater.operations.maintain.clean`, `headwater.operations.maintain.horizon`).

None of them changes a row, and none stops a flow: the commits that are made come between two batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from headwater.common import durations, times
from headwater.operations.maintain.clean import clean, forget_uncommitted
from headwater.operations.maintain.compact import compact
from headwater.operations.maintain.expire import expire, part
from headwater.operations.maintain.horizon import Hold, holds
from headwater.planner.changes import facts as definitions
from headwater.project.load import Project
from headwater.storage import checksums, erasure, lease, log, mailbox, past
from headwater.storage.intent import intents_of
from headwater.storage.lake import Lake, Place
from headwater.storage.lease import Lease
from headwater.storage.mailbox import Request
from headwater.storage.names import beside, is_engines
from headwater.storage.target import Target

KEEPER = "a copy or a savepoint that is being made"
KIND = "maintenance"  # of requests, see `headwater.storage.mailbox`


@dataclass(frozen=True)
class Maintained:
    """What was done for one table.

    Attributes:
        table: its name.
        compacted: how many files fewer it has.
        expired: how many rows went because they were kept long enough.
        commits: how many versions were forgotten.
        files, bytes: what was removed from the disk.
        first: the oldest version that can still be read.
        held: who is the reason that no more was forgotten; "" where nobody is.
    """

    table: str
    compacted: int
    expired: int
    commits: int
    files: int
    bytes: int
    first: int
    held: str = ""


def maintain(project: Project, tables: Sequence[str] = ()) -> list[Maintained]:
    """Maintain tables, and those that their flows write beside them; by default all of the lake.

    Where a process writes a table, that one is asked to do it.

    Raises:
        ProjectError: an unknown table.
        LakeError: an erase is under way.
        FlowError: the process that writes it could not do it.
        LeaseError: another process has just begun to write it.
    """
    lake = Lake(project.conf.lake)
    own = [name for name in tables if is_engines(name) and name in lake.places()]
    names = [name for name in tables if name not in own] if tables else project.names()
    for name in names:
        project.definition(name)
    found = []
    for name in names:
        erasure.refuse(lake)  # rows that expire now would be missing in what it makes anew
        while (done := _of_flow(project, lake, name)) is None:
            continue
        found += done
    return [*found, *engines(project, lake, own)] if own or not tables else found


def _of_flow(project: Project, lake: Lake, name: str) -> list[Maintained] | None:
    """Maintain a flow's tables, or have the process do it that writes them; None: they were swapped."""
    folder = lake.flow_folder(name)
    asked = mailbox.ask(folder, Request("maintain"), KIND) if lease.holder(folder) is not None else None
    if asked is not None:
        return [Maintained(**done) for done in mailbox.done(asked)]
    if name not in lake.places():
        return []
    mine = Lease(name, folder)
    try:
        places = lake.places()
        if name not in places or folder != lake.flow_at(name, places[name].generation):
            return None  # another's lease is that of the live generation
        erasure.refuse(lake)  # one that begins now waits for the lease
        written = [places[each] for each in (name, *beside(name)) if each in places]
        return targets_of(project, lake, name, list(map(Target.shared, written)))
    finally:
        mine.release()


def targets_of(project: Project, lake: Lake, name: str, targets: Sequence[Target]) -> list[Maintained]:
    """Maintain the table of a flow, and those beside it, by the process that writes them."""
    return _maintain(project, lake, targets, name, partial(holds, project, lake))


def engines(project: Project, lake: Lake, names: Sequence[str] = ()) -> list[Maintained]:
    """Maintain what any process may write: the engine's own tables, by default all of them, and, in silence,
    the catalog."""
    policy = project.conf.maintain
    if not lake.places():
        return []
    with lake.alone():
        wanted = names or [name for name in lake.places() if is_engines(name)]
        own = [lake.places()[name] for name in sorted(wanted)]
        targets = [Target(place) for place in own if log.read(place.path, log.head(place.path)).ours]
        found = _maintain(project, lake, targets, "", list)
        if (version := log.head(lake.catalog)) - log.checkpoint(lake.catalog)[0] >= policy.checkpoint:
            checksums.checkpoint(lake.catalog)
        clean(lake.catalog, upto=version, before=times.now() - policy.kept())
    return found


def _maintain(
    project: Project, lake: Lake, targets: Sequence[Target], owner: str, held: Callable[[], Sequence[Hold]]
) -> list[Maintained]:
    """Maintain tables that one flow writes ("": that no flow writes); `held` says who reads which past."""
    tidied = [_tidy(project, lake, target, owner or target.place.name) for target in targets]
    kept = project.conf.maintain.kept
    with past.forgetting(lake) as may:  # who will read on has said so, or waits and looks then
        found = held() if may else [Hold(*_life(target.place), -1, KEEPER) for target in targets]
        done = [
            _forget(one, target, times.now() - kept(one.table), found, held)
            for one, target in zip(tidied, targets, strict=True)
        ]
    return [_sweep(lake, one, target) for one, target in zip(done, targets, strict=True)]


def _tidy(project: Project, lake: Lake, target: Target, owner: str) -> Maintained:
    """Put files together, let rows expire, and write a checkpoint of the log."""
    policy, place = project.conf.maintain, target.place
    one = policy.tables.get(place.name)
    retention = durations.parse(one.retention) if one and one.retention else None
    fewer = compact(target, _sorting(lake, owner, target), within=part(retention) if retention else None)
    expired = expire(target, times.now() - retention) if retention else 0
    target.keep(policy.kept(place.name))
    target.checkpoint(policy.checkpoint)
    return Maintained(place.name, fewer, expired, commits=0, files=0, bytes=0, first=log.first(place.path))


def _forget(
    done: Maintained,
    target: Target,
    before: datetime,
    found: Sequence[Hold],
    held: Callable[[], Sequence[Hold]],
) -> Maintained:
    """Forget the versions that are older than a time, as far as nobody was found to read them."""
    place = target.place

    def held_now() -> int | None:
        by_now = _slowest(place, held())
        return None if by_now is None else by_now.version

    slowest = _slowest(place, found)
    upto = target.version if slowest is None else slowest.version
    gone = clean(place.path, upto=upto, before=before, held=held_now)
    return replace(
        done,
        commits=gone.commits,
        files=gone.files,
        bytes=gone.bytes,
        first=log.first(place.path),
        held=slowest.who if slowest is not None and _is_held(place.path, slowest.version, before) else "",
    )


def _sweep(lake: Lake, done: Maintained, target: Target) -> Maintained:
    """Remove the files that no version has, too."""
    left = forget_uncommitted(target.place.path, intents_of(lake))
    return replace(done, files=done.files + left.files, bytes=done.bytes + left.bytes)


def _slowest(place: Place, held: Sequence[Hold]) -> Hold | None:
    """Who has read least of a table, of those who read on from there."""
    mine = [hold for hold in held if (hold.table, hold.generation) == _life(place)]
    return min(mine, key=lambda hold: hold.version, default=None)


def _life(place: Place) -> tuple[str, int]:
    return place.name, place.generation


def _sorting(lake: Lake, owner: str, target: Target) -> list[str] | None:
    """The columns that files of a table are sorted by; None where rows are only appended, in their order."""
    if beside(owner).get(target.place.name) == "state":
        return []
    if not target.changes_in_place:
        return None
    facts = definitions.read(lake.flow_folder(owner)) or {}
    return [key for key in facts.get("keys", "").split(", ") if key]


def _is_held(table: Path, version: int, before: datetime) -> bool:
    """Whether rows that came before a time have not been read by who has read up to a version."""
    after = max(version, log.first(table) - 1)
    commits = log.commits(table, after=after, upto=log.head(table))
    unread = next((commit for commit in commits if commit.added or commit.removed), None)
    return unread is not None and unread.at <= before
