"""How far each flow is behind, and how fresh its table is: of a run by its own process, and by any other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headwater.common.progress import Board
from headwater.common.times import of_microseconds
from headwater.connectors import kafka
from headwater.connectors.files.ledger import Ledger
from headwater.connectors.files.source import source
from headwater.connectors.kafka.broker import list_topics
from headwater.errors import (
    BrokerError,
    CommitError,
    FlowError,
    HeadwaterError,
    LakeError,
    ProjectError,
    Unavailable,
)
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.query.inspect import history, state
from headwater.storage import failure, lease, log, ranges, summary
from headwater.storage.lake import Lake
from headwater.storage.names import gaps_name, ledger_name
from headwater.storage.ranges import Position
from headwater.storage.summary import changes_in_place


@dataclass(frozen=True)
class Status:
    """One flow, now.

    Attributes:
        flow: the table, alert or sink.
        state: starting, running, waiting, failed or done.
        rows_per_second: rows read per second, over the last five seconds.
        rows: rows written since the run began.
        quarantined: rows quarantined since the run began.
        lag: rows of its inputs that it has not read; None where that is not known.
        freshness: seconds from Kafka's timestamp of the newest record to its being readable in the
            table, in the last batch; None before the first.
        age: seconds from Kafka's timestamp of the newest record in the table until now; None as `freshness`.
    """

    flow: str
    state: str
    rows_per_second: float
    rows: int
    quarantined: int
    lag: int | None
    freshness: float | None
    age: float | None


@dataclass(frozen=True)
class Standing:
    """One table, as its lake and Kafka say.

    Attributes:
        table: its name.
        writer: the process that writes it, or sends it, by its PID; None: none does.
        behind: rows of its inputs that are not in it; None where that is not known, as for views, and of
            files (`unread`).
        newest: Kafka's timestamp of the newest record in it (UTC).
        committed: when its newest version was made (UTC); None where nothing is written yet.
        watermark: see `headwater.query.inspect.state.Kept`.
        keys: how many groups, windows or keys it keeps between batches; None where it keeps none.
        unread: of a table that files feed, how many of them are not in it yet.
        amiss: how many files are not, or not wholly, in the table, and will not be: they could not be read,
            or were changed after they were taken; `<table>__files` says which and why.
        batch: of a view, what its newest batch did: rows its query got (`rows_read`), by how many keys its
            changed rows were found (`keys_touched`; None: all of it was computed anew), and how many rows
            changed (`rows_written`); None: it has had none.
        gaps: how many gaps in its topic were accepted; `<table>__gaps` says which and why.
        error: of a broken table, what is wrong and what to do; then little else is known.
        failed: of a flow that stopped for good and has not begun again, what it said; "" of others. Its run
            goes on, and holds the table.
    """

    table: str
    writer: int | None
    behind: int | None
    newest: datetime | None
    committed: datetime | None
    watermark: datetime | None
    keys: int | None
    unread: int | None = None
    amiss: int = 0
    gaps: int = 0
    error: str = ""
    failed: str = ""
    batch: dict[str, int | None] | None = None


def standings(project: Project) -> list[Standing]:
    """Every table that a flow feeds, in the order of the graph, and each alert and sink that has failed.
    Nothing is started to find out."""
    lake, ends, found = Lake(project.conf.lake), _ends(project), []
    for name in project.names():
        writer = lease.holder(lake.flow_folder(name))
        try:
            found.append(_standing(project, lake, name, writer, ends))
        except HeadwaterError as e:
            why = _failed(lake, name)
            found.append(Standing(name, writer, None, None, None, None, None, error=str(e), failed=why))
    for name in (*project.alerts, *project.sinks):
        if said := _failed(lake, name):
            writer = lease.holder(lake.flow_folder(name))
            found.append(Standing(name, writer, None, None, None, None, None, failed=said))
    return found


def _failed(lake: Lake, name: str) -> str:
    """Why a flow has failed, and when; "" where it has not."""
    try:
        kept = failure.read(lake.flow_folder(name))
    except CommitError as e:
        return str(e)
    if kept is None:
        return ""
    code = f" [{kept.code}]" if kept.code else ""
    return f"failed at {kept.at:%Y-%m-%d %H:%M:%SZ}: {kept.error}{code}"


def _standing(
    project: Project, lake: Lake, name: str, writer: int | None, ends: Mapping[str, int] | None
) -> Standing:
    """One table.

    Raises:
        CommitError: it is broken.
    """
    places = lake.places()
    keeps = state.of(project, places, name)
    newest = committed = batch = None
    if name in places:
        commit = log.read(places[name].path, log.head(places[name].path))
        times = [flow["newest"] for flow in commit.flows.values() if flow.get("newest")]
        newest = of_microseconds(max(times) * 1000) if times else None
        committed = commit.at if commit.version else None
        batch = _batch(name, commit) if name in project.tables and project.tables[name].view else None
    behind = None
    if ends is not None or name not in project.topics:
        behind = lag(project, lake, name, ends or {})
    ledger = Ledger.of(lake, name) if ledger_name(name) in places or name in project.files else None
    return Standing(
        table=name,
        writer=writer,
        behind=behind,
        newest=newest,
        committed=committed,
        watermark=keeps.watermark if keeps else None,
        keys=keeps.keys if keeps else None,
        unread=_unread(project, ledger, name) if ledger else None,
        amiss=len(ledger.amiss()) if ledger else 0,
        gaps=summary.of(places[gaps_name(name)]).rows or 0 if gaps_name(name) in places else 0,
        batch=batch,
        failed=_failed(lake, name),
    )


def _batch(name: str, commit: log.Commit) -> dict[str, int | None] | None:
    """What a view's newest batch did; None: its newest commit is none of its."""
    if name not in commit.batches:
        return None
    said = history.version_of(name, commit)
    written = None if said.rows_added is None else said.rows_added + said.rows_changed + said.rows_removed
    return {"rows_read": said.rows_read, "keys_touched": said.keys_touched, "rows_written": written}


def _unread(project: Project, ledger: Ledger, name: str) -> int | None:
    """How many files a table has yet to take; None where it is not files that feed it, or their store can't
    be asked."""
    files = project.files.get(name)
    if files is None:
        return None
    try:
        found = source(files.pattern, project.root, project.conf).find(taken=ledger.files)
    except (Unavailable, FlowError, ProjectError, LakeError):
        return None
    return len(ledger.see(found, files.pattern).new)


def _ends(project: Project) -> dict[str, int] | None:
    """How many records each topic has had; None where Kafka can't be asked."""
    conf = project.conf
    if conf.kafka == "embedded":
        broker = kafka.embedded_broker(project.root, conf).status()
        bootstrap = broker.bootstrap if broker.running else None
    else:
        bootstrap = str(conf.kafka.get("bootstrap.servers", ""))
    if bootstrap is None:
        return None
    try:
        return _ends_of(project, kafka.client_options(conf, bootstrap))
    except BrokerError:
        return None


def _ends_of(project: Project, client: Mapping[str, Any]) -> dict[str, int]:
    """{topic that the project reads → how many records it has had}."""
    topics = {raw.topic for raw in project.topics.values()}
    return {topic.name: topic.end for topic in list_topics(client, topics)}


def snapshot(project: Project, board: Board, client: Mapping[str, Any] | None) -> list[Status]:
    """The flows of a run that is at work, as its board, its lake and Kafka say, in the board's order.

    Args:
        project: the definitions.
        board: of the run.
        client: a client's options; None: no flow of the run needs Kafka.
    """
    lake, ends = Lake(project.conf.lake), None
    if client is not None and board.flows:
        with suppress(BrokerError):
            ends = _ends_of(project, client)
    found = []
    for name, flow in list(board.flows.items()):
        last = flow.recent[-1] if flow.recent else None
        found.append(
            Status(
                flow=name,
                state=flow.state,
                rows_per_second=round(flow.rate(), 1),
                rows=flow.rows_out,
                quarantined=flow.quarantined,
                lag=None if ends is None and name in project.topics else lag(project, lake, name, ends or {}),
                freshness=None if last is None else last.freshness,
                age=None if last is None else last.age(),
            )
        )
    return found


def lag(project: Project, lake: Lake, name: str, ends: Mapping[str, int]) -> int | None:
    """How many rows of its inputs a table has not read; None where that is not known, as of a broken input,
    or of one from which rows were taken: that stops the flow.

    Args:
        project: the definitions.
        lake: where the tables lie.
        name: the table.
        ends: how many records each topic of Kafka has had.
    """
    try:
        return _lag(project, lake, name, ends)
    except (CommitError, FlowError):
        return None


def _lag(project: Project, lake: Lake, name: str, ends: Mapping[str, int]) -> int | None:
    places = lake.places()
    if name not in places:
        return None
    mine = log.flows(places[name].path).get(name)
    if name in project.files:
        return None  # nobody has counted the records of files that were not read
    if name in project.topics:
        topic = project.topics[name].topic
        read = sum(mine["consumed"].get(topic, {}).values()) if mine else 0
        return max(0, ends.get(topic, 0) - read)
    table = project.definition(name)
    assert isinstance(table, Table)
    if table.view:
        return None  # it reads whole tables
    committed, rows = log.flows(places[name].path), 0
    for flow in table.flows or (table,):
        read = committed.get(flow.name, {}).get("consumed", {})
        for stream in project.streams(flow):
            if stream not in places:
                return None
            start = Position.parse(read[stream]) if stream in read else Position(generation=1)
            if start.is_over:
                continue
            if not ranges.is_as_read(places[stream].path, start):
                return None
            changes = stream in project.tables and changes_in_place(places[stream])  # bronze never does
            rows += ranges.lag(places[stream].path, start, changes=changes)
    return rows
