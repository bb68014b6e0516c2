"""`headwater accept-gap`: a bronze table goes on behind records that Kafka has no more."""

from __future__ import annotations

from headwater.connectors import kafka
from headwater.connectors.kafka.extent import extent
from headwater.errors import LakeError, ProjectError
from headwater.flows import gaps
from headwater.flows.gaps import Gap, Reached
from headwater.planner import analysis, changes
from headwater.project.definitions import Topic
from headwater.project.load import Project
from headwater.storage import erasure, lease
from headwater.storage.lake import Lake
from headwater.storage.target import Target


def find(project: Project, table: str) -> list[Gap]:
    """What Kafka has no more of that a bronze table has not read. Changes nothing.

    Raises:
        ProjectError: no table of a topic.
        LakeError: nothing is missing.
        BrokerError: Kafka can't be reached.
    """
    topic = _topic(project, table)
    found, _ = _gaps(project, topic, Target.shared(Lake(project.conf.lake).place(table)))
    return found


def accept(project: Project, table: str, why: str | None = None) -> list[Gap]:
    """Let a bronze table go on behind what Kafka has no more; the gaps, which `<table>__gaps` keeps.

    Args:
        project: the definitions.
        table: the bronze table.
        why: why nobody needs the records, for who reads of it later.

    Raises:
        ProjectError: no table of a topic.
        LakeError: nothing is missing, or an erase is under way.
        BrokerError: Kafka can't be reached.
        LeaseError: another process writes the table.
    """
    topic, lake = _topic(project, table), Lake(project.conf.lake)
    erasure.refuse(lake)
    mine = lease.of_live(lake, table)
    try:
        erasure.refuse(lake)  # one that begins now waits for the lease
        analysed = analysis.of_raw(project, topic)
        changes.accept(project, lake, table, analysed)
        target = Target.shared(lake.place(table))
        commits = gaps.committer(lake, target)
        gaps.recover(commits)
        found, on = _gaps(project, topic, target)
        gaps.accept(commits, topic, found, on, why, analysed.fingerprint)
        return found
    finally:
        mine.release()


def _gaps(project: Project, topic: Topic, target: Target) -> tuple[list[Gap], Reached]:
    """The gaps, and where the table goes on behind them."""
    client = kafka.client_options(project.conf, kafka.ensure_running(project.root, project.conf))
    reached, now = Reached.of(target, topic), extent(client, topic.topic)
    found = reached.gaps(now) if reached else []
    if reached is None or not found:
        raise LakeError(
            f"{topic.where} misses nothing: Kafka has all of topic {topic.topic} that it has not read",
            code="NOTHING_MISSING",
            where=topic.where,
        )
    return found, reached.behind(now)


def _topic(project: Project, table: str) -> Topic:
    found = project.definition(table)
    if not isinstance(found, Topic):
        raise ProjectError(
            f"{found.where} reads no topic",
            code="NOT_OF_A_TOPIC",
            where=found.where,
            hint=f"those that do: {', '.join(project.topics) or 'none'}",
        )
    return found
