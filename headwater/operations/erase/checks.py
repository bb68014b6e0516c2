"""What has to be so for an erase to come to its end."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from headwater.errors import LakeError, LeaseError, ProjectError
from headwater.flows import marks
from headwater.operations import rebuild
from headwater.operations.drop import without_definition
from headwater.operations.erase.earlier import concerned, derived
from headwater.operations.rebuild.shadow import Plan
from headwater.operations.rebuild.since import EARLIEST, check_whole, history_of
from headwater.operations.savepoints.cut.whole import remove_left
from headwater.operations.savepoints.kept import all_of
from headwater.project.load import Project
from headwater.storage import past
from headwater.storage.erasure import Erasure
from headwater.storage.intent import IntentFile
from headwater.storage.lake import Lake
from headwater.storage.names import backfill_name


def definitions(project: Project, lake: Lake) -> None:
    """Check that each table has a definition to make it anew by.

    Raises:
        ProjectError: one has none.
    """
    loose = without_definition(project, lake.places())
    if loose:
        raise ProjectError(
            f"{', '.join(loose)} may have what was made of the records, and no definition to make it by",
            code="TABLE_WITHOUT_DEFINITION",
            table=loose[0],
            hint="remove it first: headwater drop TABLE",
        )


def can_end(project: Project, lake: Lake, bronze: Collection[str], places: pa.Table, since: str) -> None:
    """Check that an erase that begins can come to its end.

    Args:
        project: the definitions.
        lake: where the tables lie.
        bronze: the bronze tables that have the records.
        places: where they stand.
        since: as of `erase`.

    Raises:
        ProjectError: it can't.
        LeaseError: another process is making or removing a savepoint, or is making a copy.
    """
    if Erasure.read(lake) is not None:
        raise LakeError(
            "another erase was killed half-way",
            code="ERASE_UNDER_WAY",
            hint="headwater erase ends that one first",
        )
    under_way = Plan.read(lake)
    if under_way is not None and not rebuild.is_swapped(lake, under_way):
        raise LakeError(
            "a rebuild is under way",
            code="REBUILD_UNDER_WAY",
            hint="end it, or remove what it built: headwater rebuild --abort",
        )
    savepoints(lake)
    keepers(lake)
    topics = {*places["topic"].to_pylist()}
    for name in (name for name, each in project.raw.items() if name in bronze or each.topic in topics):
        for flow in (name, backfill_name(name)):
            begun = IntentFile(lake.flow_folder(flow, name)).read()
            if begun is not None and not begun.sealed:
                raise LakeError(
                    f"{flow} was killed in a batch",
                    code="BATCH_BROKEN_OFF",
                    table=name,
                    hint=f"let it end first: headwater run {name} --once",
                )
    below = derived(project, lake, bronze)
    of_records = concerned(project, lake, bronze, places)
    for sink in project.sinks.values():
        if sink.table in of_records and marks.begun(lake, sink.name).is_set():
            raise LakeError(
                f"{sink.where} was broken off in a batch, so what it has is not known",
                code="BATCH_BROKEN_OFF",
                where=sink.where,
                hint=f"let it end first: headwater run {sink.table} --once",
            )
    if since != EARLIEST:
        check_whole(lake, project, below, history_of(project, below))


def savepoints(lake: Lake) -> None:
    """Check that there is no savepoint; what killed processes left of one is removed.

    Raises:
        ProjectError: there is one.
        LeaseError: another process is making or removing one.
    """
    remove_left(lake.root / "_savepoints")
    kept = [savepoint.name for savepoint in all_of(lake)]
    if kept:
        raise LakeError(
            f"the savepoints {', '.join(kept)} have what was made of the records, and could bring it back",
            code="SAVEPOINTS_HOLD_RECORDS",
            hint="remove them first: headwater savepoint drop NAME",
        )


def keepers(lake: Lake) -> None:
    """Check that no copy is being made: it may have what was made of the records already.

    Raises:
        LeaseError: one is.
    """
    with past.forgetting(lake) as may:
        if not may:
            raise LeaseError(
                f"{lake.root}: a copy is being made, which may have what is to be erased",
                code="LEASE_HELD",
                file=lake.root,
                hint="when it is done, run headwater erase again",
            )
