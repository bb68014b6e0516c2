"""Erasing records, such as those of a person, and all that was made of them.

1. **Find** the records in bronze by a condition on their decoded fields.
2. **Note** where they stand, in a small file: from here on nothing else begins on the lake until all is done.
3. **Take them out** of bronze: its files are written anew without them, its past is forgotten.
4. **Rebuild** all that is derived from there, with quarantines, late tables and state, and swap it in one
   commit; sinks are sent what is other in the new tables.
5. **Remove** the generations before, and those of other tables that were made of these (see `earlier`), and
   prove by the places of the records that no file has them.

Killed anywhere, the same command goes on. The streams go on in the new tables; a rebuild or a replay can't
bring the records back, as bronze has them no more.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta

from headwater.common.progress import Board
from headwater.connectors import kafka
from headwater.connectors.kafka import wanted
from headwater.connectors.kafka.topics import create_topics
from headwater.errors import LakeError, LeaseError, ProjectError
from headwater.flows import marks, publish
from headwater.flows.context import Context
from headwater.operations import rebuild
from headwater.operations.drop import without_definition
from headwater.operations.erase.earlier import concerned
from headwater.operations.erase.find import Found, counted, find
from headwater.operations.erase.history import forget_past, take_out
from headwater.operations.erase.left import left
from headwater.operations.erase.proof import Searched, search
from headwater.operations.maintain.clean import forget_uncommitted
from headwater.operations.rebuild.build import Progress
from headwater.operations.rebuild.shadow import Plan
from headwater.operations.rebuild.since import EARLIEST, check_whole, history_of
from headwater.operations.savepoints import copies
from headwater.operations.savepoints.cut.whole import remove_left
from headwater.operations.savepoints.kept import all_of
from headwater.planner import analysis
from headwater.project.definitions import KafkaSink
from headwater.project.load import Project
from headwater.runtime import failpoints, sessions
from headwater.storage import failure, log, past
from headwater.storage.erasure import Erasure
from headwater.storage.intent import IntentFile, intents_of
from headwater.storage.lake import Lake
from headwater.storage.names import backfill_name
from headwater.storage.target import Target


@dataclass(frozen=True)
class Erased:
    """What an erase did.

    Attributes:
        records: how many records went.
        bronze: the bronze tables that had them.
        tables: {table that was made anew → its generation now}.
        sinks: those that were sent what is other now.
        searched: what was looked through for them.
        left: what may still have them, in words.
    """

    records: int
    bronze: Sequence[str]
    tables: dict[str, int]
    sinks: Sequence[str]
    searched: Searched
    left: Sequence[str]


def unfinished(project: Project) -> Erasure | None:
    """The erase that was killed half-way; None where there is none."""
    return Erasure.read(Lake(project.conf.lake))


def made_of(project: Project, bronze: Sequence[str]) -> list[str]:
    """The tables that are derived from bronze tables."""
    return [name for name in project.below(list(bronze)) if name not in project.raw]


def look(project: Project, table: str, where: str) -> Found:
    """What would be erased; see `headwater.operations.erase.find`.

    Raises:
        ProjectError: the table decodes no records, or the condition is none on its columns.
    """
    return find(project, Lake(project.conf.lake), table, where)


def erase(
    project: Project,
    found: Found | Erasure,
    *,
    since: str = "",
    progress: Progress | None = None,
    notices: Board | None = None,
) -> Erased:
    """Erase records, or go on with the erase that was killed.

    Args:
        project: the definitions.
        found: what `look` found, or `unfinished`.
        since: `earliest` where a bronze table lets go of its rows by their age, and it is known that the
            tables below lose what was made of those.
        progress: told how far the rebuild is.
        notices: where a person is told of what happens.

    Raises:
        LakeError: a savepoint or a table without a definition may have the records, a rebuild is under
            way, a bronze table or a sink has begun a batch that is not done, or the history is not whole any
            more.
        LeaseError: another process writes a table or a sink of the project, or makes a savepoint or a copy.
        FlowError, SinkUnavailable: the rebuild or a sink failed; the same command goes on.
    """
    lake, board = Lake(project.conf.lake), notices or Board()
    lake.finish()
    names = [*project.names(), *project.sinks]
    known = {name: lake.flow_folder(name) for name in names}
    with rebuild.held(lake, names), ExitStack() as again:
        if isinstance(found, Found):
            _check(project, lake, found, since)
            erasure = Erasure(list(found.records), found.places, since)
            erasure.write(lake)
        else:
            erasure = found
        failpoints.reach("noted", "erase")
        _check_savepoints(lake)  # one may have been begun before the note
        _check_keepers(lake)
        for name in erasure.tables:
            target = Target(lake.place(name))
            take_out(target, erasure.places)
            failpoints.reach("taken", "erase")
            forget_past(lake, target)
        failpoints.reach("forgotten", "erase")
        below = made_of(project, erasure.tables)
        tables: dict[str, int] = {}
        if below:
            built = rebuild.rebuild(
                project, below, since=erasure.since, progress=progress, notices=board, erasing=True
            )
            tables = built.tables
            others = [name for name in below if lake.flow_folder(name) != known[name]]
            again.enter_context(rebuild.held(lake, others))  # which are live now
        failpoints.reach("rebuilt", "erase")
        of_records = concerned(project, lake, erasure.tables, erasure.places)
        sinks = _publish(project, lake, of_records, board)
        failpoints.reach("published", "erase")
        _remove_earlier(project, lake, of_records)
        failure.forget(map(lake.flow_folder, [*project.names(), *project.alerts, *project.sinks]))
        searched = search(lake, erasure.places)
        erasure.forget(lake)
    rest = left(project, lake, erasure.places, of_records, sinks)
    return Erased(len(erasure.places), erasure.tables, tables, list(sinks), searched, rest)


def _check(project: Project, lake: Lake, found: Found, since: str) -> None:
    """Check that an erase that begins can come to its end.

    Raises:
        ProjectError: it can't.
        LeaseError: another process is making or removing a savepoint, or is making a copy.
    """
    if unfinished(project) is not None:
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
    _check_savepoints(lake)
    _check_keepers(lake)
    loose = without_definition(project, lake.places())
    if loose:
        raise ProjectError(
            f"{', '.join(loose)} may have what was made of the records, and no definition to make it by",
            code="TABLE_WITHOUT_DEFINITION",
            table=loose[0],
            hint="remove it first: headwater drop TABLE",
        )
    for name in found.records:
        for flow in (name, backfill_name(name)):
            begun = IntentFile(lake.flow_folder(flow, name)).read()
            if begun is not None and not begun.sealed:
                raise LakeError(
                    f"{flow} was killed in a batch",
                    code="BATCH_BROKEN_OFF",
                    table=name,
                    hint=f"let it end first: headwater run {name} --once",
                )
    below = made_of(project, list(found.records))
    of_records = concerned(project, lake, list(found.records), found.places)
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


def _check_savepoints(lake: Lake) -> None:
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


def _check_keepers(lake: Lake) -> None:
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


def _publish(project: Project, lake: Lake, tables: Sequence[str], board: Board) -> dict[str, bool]:
    """Send the sinks of tables what is other now; {sink → whether its rows have keys}.

    Raises:
        SinkUnavailable: one can't be reached.
        FlowError: one refused it.
    """
    sinks = [sink for sink in project.sinks.values() if sink.table in tables]
    if not sinks or copies.mark(lake.root):  # nothing leaves a copy
        return {}
    into_kafka = any(isinstance(sink, KafkaSink) for sink in sinks)
    bootstrap = ""
    if into_kafka:
        bootstrap = kafka.ensure_running(project.root, project.conf)
        create_topics(kafka.client_options(project.conf, bootstrap), wanted.topics([], [], sinks))
    spark = sessions.start(project.conf)
    context = Context(project, analysis.analyse(spark, project), spark, lake, board, bootstrap=bootstrap)
    for name in project.names():
        context.heads.end(name)
    for sink in sinks:
        publish.PublishFlow(context, sink).run()
    return {sink.name: bool(context.tables[sink.table].keys) for sink in sinks}


def _remove_earlier(project: Project, lake: Lake, tables: Sequence[str]) -> None:
    """Remove the generations of tables before the live ones, what their flows kept, and what reconciling has
    built.

    So are files that killed processes have left in any table: what is not whole can't be looked through.
    """
    rebuild.clean(project, tables)
    places, derived = lake.places(), [each for each in tables if each in project.tables]
    for flow, table in rebuild.flows_into(project, derived).items():  # last: it says what they were made of
        for folder in lake.flow_at(flow, 1).parent.glob("g[0-9]*"):
            if table in places and folder != lake.flow_at(flow, places[table].generation):
                shutil.rmtree(folder)
    shutil.rmtree(lake.root / "_reconcile", ignore_errors=True)
    with lake.alone():  # all others are held
        intents = intents_of(lake)
        for place in places.values():
            if log.exists(place.path):
                forget_uncommitted(place.path, intents, older=timedelta(0), alone=True)


__all__ = ["Erased", "Erasure", "Found", "Searched", "counted", "erase", "look", "made_of", "unfinished"]
