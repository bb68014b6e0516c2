"""`headwater quarantine replay | discard`: by the process that writes the table, else by this one."""

from __future__ import annotations

from typing import Literal

from headwater.common.progress import Board
from headwater.errors import LakeError
from headwater.flows.context import Context, Moved
from headwater.flows.declared import flow_of
from headwater.flows.replay import Resolution
from headwater.flows.resolving import ResolvingFlow
from headwater.planner import analysis
from headwater.project.load import Project
from headwater.quality import quarantine
from headwater.quality.quarantine import Quarantine
from headwater.runtime import sessions
from headwater.storage import erasure, lease, mailbox
from headwater.storage.lake import Lake
from headwater.storage.mailbox import Request


def resolve(
    project: Project,
    table: str,
    action: Literal["replay", "discard"],
    *,
    rule: str | None = None,
    why: str | None = None,
) -> Resolution:
    """Replay or discard the open records of a table's quarantine.

    A running `headwater run` that writes the table does it between two batches; without one this process
    takes the table's lease and does it itself.

    Args:
        project: the definitions.
        table: whose quarantine it is.
        action: `replay`, or `discard`.
        rule: only the records that fail this rule.
        why: the reason of discarding.

    Raises:
        ProjectError: the table has no quarantine.
        LakeError: no open record fails the rule.
        FlowError: it could not be done; the message says what to do.
        LeaseError: another process has just begun to write the table.
    """
    quarantine.check(project, table)
    lake = Lake(project.conf.lake)
    held = Quarantine(lake, table)
    if rule is not None and rule not in (known := held.rules()):
        raise LakeError(
            f"{table}: no open record fails '{rule}'",
            code="NO_SUCH_RECORD",
            table=table,
            hint=f"they fail: {', '.join(known) or 'nothing'}",
        )
    if not held.exists():
        return Resolution()
    request = Request(action, rule, why, project.digest)
    folder = lake.flow_folder(table)
    answer = mailbox.ask(folder, request) if lease.holder(folder) is not None else None
    return Resolution(**mailbox.done(answer)) if answer else _here(project, lake, table, request)


def _here(project: Project, lake: Lake, table: str, request: Request) -> Resolution:
    while True:
        mine = lease.of_live(lake, table)
        try:
            erasure.refuse(lake)  # one that begins now waits for the lease
            spark = sessions.start(project.conf)
            context = Context(project, analysis.analyse(spark, project), spark, lake, Board(None))
            flow = flow_of(context, table)
            if mine.folder != lake.flow_folder(table):  # it was opened as the lease of another holds it
                raise Moved(table)
            assert isinstance(flow, ResolvingFlow)
            with context.turn(table):
                flow.recover()  # a record whose batch is half committed is in the table already
                with mailbox.attempted(project.tables[table].where):
                    return flow.resolve(request)
        except Moved:  # a rebuild has put another generation in its place
            continue
        finally:
            mine.release()
