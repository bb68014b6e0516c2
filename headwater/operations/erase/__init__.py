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
from dataclasses import dataclass, replace
from datetime import timedelta

from headwater.common.progress import Board
from headwater.connectors import kafka
from headwater.connectors.kafka import wanted
from headwater.connectors.kafka.topics import create_topics
from headwater.flows import publish
from headwater.flows.context import Context
from headwater.operations import rebuild
from headwater.operations.erase import checks
from headwater.operations.erase.earlier import concerned, derived
from headwater.operations.erase.find import Found, counted, find, records
from headwater.operations.erase.history import forget_past, take_out
from headwater.operations.erase.left import left
from headwater.operations.erase.proof import Searched, search
from headwater.operations.maintain.clean import forget_uncommitted
from headwater.operations.rebuild.build import Progress
from headwater.operations.savepoints import copies
from headwater.planner import analysis
from headwater.project.definitions import KafkaSink
from headwater.project.load import Project
from headwater.runtime import failpoints, sessions
from headwater.storage import failure, log
from headwater.storage.erasure import Erasure
from headwater.storage.intent import intents_of
from headwater.storage.lake import Lake
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
    """The tables that are made of bronze tables; see `headwater.operations.erase.earlier`."""
    return derived(project, Lake(project.conf.lake), bronze)


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
        checks.definitions(project, lake)
        have = found.records if isinstance(found, Found) else found.tables
        by_now = records(project, lake, found.places)  # another table may have read them since
        bronze = [*dict.fromkeys([*have, *by_now])]
        if isinstance(found, Found):
            checks.can_end(project, lake, bronze, found.places, since)
            erasure = Erasure(bronze, found.places, since)
        else:
            erasure = replace(found, tables=bronze)
        erasure.write(lake)
        failpoints.reach("noted", "erase")
        checks.savepoints(lake)  # one may have been begun before the note
        checks.keepers(lake)
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
