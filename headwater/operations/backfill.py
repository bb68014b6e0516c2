"""`headwater backfill`: by the process that writes the table, else by this one."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

from headwater.connectors.files import formats
from headwater.connectors.files.file import File
from headwater.connectors.files.ledger import Ledger
from headwater.connectors.files.source import source, whole
from headwater.errors import ProjectError
from headwater.flows.backfill import Backfill, Backfilled
from headwater.planner import analysis
from headwater.planner.changes import accept
from headwater.project.definitions import Files, Format, Topic
from headwater.project.load import Project
from headwater.storage import erasure, lease, mailbox
from headwater.storage.lake import Lake
from headwater.storage.mailbox import Request
from headwater.storage.target import Target

State = Literal["new", "taken", "unreadable", "changed"]


@dataclass(frozen=True)
class Planned:
    """A file that a backfill would look at.

    Attributes:
        path: its absolute path, or where it is in its store.
        size: in bytes.
        state: `new`: it would be taken; `taken`: it is in the table; `unreadable`: it would be tried again;
            `changed`: it was taken and is another now, and would not be read.
    """

    path: str
    size: int
    state: State


def plan(project: Project, table: str, pattern: str) -> list[Planned]:
    """What a backfill would do, file by file, in its order. Changes nothing, and opens no file.

    Args:
        project: the definitions.
        table: the bronze table.
        pattern: which files; a relative one stands below the current folder.

    Raises:
        ProjectError: no table of a topic, or no such file.
    """
    _topic(project, table)
    pattern = whole(pattern)
    ledger = Ledger.of(Lake(project.conf.lake), table)
    files = _found(project, pattern, ledger)
    seen = ledger.see(files, pattern)
    states: dict[File, State] = dict.fromkeys(seen.new, "new")
    states |= dict.fromkeys(seen.unreadable, "unreadable")
    states |= dict.fromkeys((file for file, _ in seen.changed), "changed")
    return [Planned(file.path, file.size, states.get(file, "taken")) for file in files]


def backfill(project: Project, table: str, pattern: str, form: Format | None = None) -> Backfilled:
    """Take records from files into the bronze table of a topic: each file once, whatever is asked for.

    A running `headwater run` that writes the table does it between its batches; without one this process
    takes the table's lease and does it itself.

    Args:
        project: the definitions.
        table: the bronze table.
        pattern: which files, or the folder of a Delta table; a relative one stands below the current folder.
            Those of one pattern are one partition, in the order of their names.
        form: what is in them; None: as their names say.

    Raises:
        ProjectError: no table of a topic, no such file, names that do not say one format, or a Delta table
            whose files are not its rows, or were rewritten since they were taken.
        FlowError: it could not be done; the message says what to do.
        LeaseError: another process has just begun to write the table.
        LakeError: an erase is under way.
    """
    topic = _topic(project, table)
    pattern, lake = whole(pattern), Lake(project.conf.lake)
    erasure.refuse(lake)
    found = _found(project, pattern, Ledger.of(lake, table))
    form = form or formats.of(file.path for file in found)
    request = Request("backfill", None, None, project.digest, pattern=pattern, format=form)
    folder = lake.flow_folder(table)
    answer = mailbox.ask(folder, request) if lease.holder(folder) is not None else None
    return Backfilled(**mailbox.done(answer)) if answer else _here(project, lake, topic, pattern, form)


def _topic(project: Project, table: str) -> Topic:
    found = project.definition(table)
    if isinstance(found, Files):
        raise ProjectError(
            f"{found.where} takes what lies at {found.pattern}",
            code="BACKFILL_NEEDS_TOPIC",
            where=found.where,
            hint="put the files there",
        )
    if not isinstance(found, Topic):
        raise ProjectError(
            f"{found.where} follows from {', '.join(found.sources)}",
            code="BACKFILL_NEEDS_TOPIC",
            where=found.where,
            hint=f"history enters a table of bronze: {', '.join(project.topics) or 'there is none'}",
        )
    return found


def _found(project: Project, pattern: str, ledger: Ledger) -> list[File]:
    files = source(pattern, project.root, project.conf)
    found = files.find(by_name=True, taken=ledger.files)
    if not found:
        raise ProjectError(
            f"no file is named {pattern} (files that begin with _ or . are left alone)",
            code="NO_FILES",
            file=pattern,
        )
    return found


def _here(project: Project, lake: Lake, topic: Topic, pattern: str, form: Format) -> Backfilled:
    mine = lease.of_live(lake, topic.name)
    try:
        with mailbox.attempted(topic.where):
            erasure.refuse(lake)  # one that begins now waits for the lease
            analysed = analysis.of_raw(project, topic)
            accept(project, lake, topic.name, analysed)
            place = lake.create(topic.name, analysed.stored, comment=topic.comment, properties={})
            history = Backfill(project, lake, topic, Target.shared(place))
            return history(pattern, form, turn=nullcontext, stopped=lambda: False, announce=lambda: None)
    finally:
        mine.release()
