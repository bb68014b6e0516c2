"""Gaps: what a table has not read of its topic and Kafka has no more; found, said, accepted by a person.

A flow that finds a gap stops. Who accepts it lets the table go on behind it, in one commit without records,
which says where the table goes on, and with which `<table>__gaps` is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
from confluent_kafka.admin import AdminClient

from headwater.common import times
from headwater.connectors.kafka.extent import Extent, admin, extent, topic_id
from headwater.errors import BrokerError, FlowError, HeadwaterError, Unavailable
from headwater.errors.codes import Code
from headwater.project.conf import KafkaOptions
from headwater.project.definitions import Topic
from headwater.storage.commit import Built, Committer
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Lake
from headwater.storage.names import gaps_name
from headwater.storage.target import Target

GAPS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("reason", pa.string()),
        ("why", pa.string()),
        ("batch", pa.int64()),
        ("accepted_at", pa.timestamp("us", "UTC")),
    ]
)
"""Gaps that were accepted.

Columns: the first and the last offset that the table has not (last: NULL where nobody knows it); reason, as
`Gap` has it; why, in the words of who accepted it; the batch that did, and its clock (UTC).
"""


Reason = Literal["expired", "recreated", "truncated"]
_SAID: dict[Reason, tuple[Code, str]] = {  # the worst first
    "recreated": ("TOPIC_RECREATED", "was deleted and made again, so what was not read of it is gone"),
    "truncated": ("TOPIC_CUT_SHORT", "ends before what was read of it"),
    "expired": ("RECORDS_GONE", "has let go of records before they were read"),
}
_SHOWN = 8  # gaps in a message


@dataclass(frozen=True)
class Gap:
    """Offsets of a partition that the table can't read any more.

    Attributes:
        partition: its number.
        first: the first of them.
        last: the last of them; None where nobody knows it.
        reason: `expired`: Kafka let go of the records, by the topic's retention or since it was told to;
            `recreated`: the topic was deleted, and another has its name; `truncated`: the topic ends before
            what the table has of it, so these offsets are given anew, to other records.
    """

    partition: int
    first: int
    last: int | None
    reason: Reason

    def __str__(self) -> str:
        if self.last is None:
            return f"partition {self.partition} from offset {self.first} on"
        return f"partition {self.partition} offsets {self.first} to {self.last}"


@dataclass(frozen=True)
class Reached:
    """How far a table, or an alert, has read its topic.

    Attributes:
        id: Kafka's, of the topic; "": not known.
        next: {partition → the offset after the last record that was read}.
    """

    id: str
    next: dict[int, int]

    @classmethod
    def of(cls, table: Target, topic: Topic) -> Reached | None:
        """As the newest commit of the topic's flow says; None before the first."""
        mine: Mapping[str, Any] = table.flows.get(topic.name, {})
        read = mine.get("consumed", {}).get(topic.topic)
        if read is None:
            return None
        return cls(mine.get("topics", {}).get(topic.topic, ""), {int(each): at for each, at in read.items()})

    def begin(self, now: Extent) -> dict[int, int]:
        """{partition → the offset that is read next}; a partition that was added is read from offset 0."""
        return {partition: self.next.get(partition, 0) for partition in now.end}

    def gaps(self, now: Extent) -> list[Gap]:
        """What lies between here and what Kafka has now."""
        if self.id and now.id and self.id != now.id:
            return self.recreated()
        found = []
        for partition, at in sorted(self.begin(now).items()):
            end, first = now.end[partition], now.first[partition]
            if end < at:
                found.append(Gap(partition, end, at - 1, "truncated"))
            elif at < first:
                found.append(Gap(partition, at, first - 1, "expired"))
        return found

    def recreated(self) -> list[Gap]:
        """What is not known to be read, where another topic has the name now."""
        return [Gap(partition, at, None, "recreated") for partition, at in sorted(self.next.items())]

    def behind(self, now: Extent) -> Reached:
        """Where the table goes on behind the gaps that there are."""
        if any(gap.reason == "recreated" for gap in self.gaps(now)):
            return Reached(now.id, now.first)
        on = {each: min(max(self.next.get(each, 0), now.first[each]), end) for each, end in now.end.items()}
        return Reached(now.id or self.id, on)


class Watched:
    """The topic of a table, watched for gaps.

    Args:
        table: the table, open for writing.
        topic: its definition.
        client: options of the Python client.
    """

    def __init__(self, table: Target, topic: Topic, client: KafkaOptions) -> None:
        self._table, self._topic, self._client = table, topic, client
        self._id = ""  # Kafka's, of the topic that is read now
        self._asked: AdminClient | None = None

    def begin(self) -> tuple[Reached | None, Extent]:
        """How far the table has read the topic (None: it has not begun), and from where to where that goes.

        Raises:
            FlowError: Kafka has no more what the table is to read next.
            BrokerError: Kafka can't be reached, or has no such topic.
        """
        reached, now = Reached.of(self._table, self._topic), extent(self._client, self._topic.topic)
        if found := reached.gaps(now) if reached else []:
            raise missing(self._topic, found)
        self._id = now.id
        return reached, now

    def ids(self) -> dict[str, str]:
        """What a commit says of the topic: see `Intent.topics`."""
        return {self._topic.topic: self._id} if self._id else {}

    def check(self) -> None:
        """Check that all that was read since `begin` is of the topic that was there then.

        Raises:
            FlowError: another has its name now.
            BrokerError: Kafka can't be reached, or has no such topic.
        """
        asked, self._asked = self._asked or admin(self._client), None
        found = topic_id(self._client, self._topic.topic, asked)
        self._asked = asked  # one that answers; a client that has lost its brokers may never find them again
        if found != self._id:
            read = Reached.of(self._table, self._topic)
            raise missing(self._topic, Reached(self._id, read.next if read else {0: 0}).recreated())

    def why(self, failure: Exception) -> Exception:
        """What made a batch fail: a gap, where Kafka has no more what it was to read."""
        if not isinstance(failure, HeadwaterError):
            try:
                self.begin()
            except Unavailable:
                return failure
            except (FlowError, BrokerError) as why:
                return why
        return failure


def missing(topic: Topic, gaps: Sequence[Gap]) -> FlowError:
    """The error of a flow that finds gaps."""
    code, why = next(said for reason, said in _SAID.items() if any(gap.reason == reason for gap in gaps))
    more = f" and {len(gaps) - _SHOWN} more partitions" if len(gaps) > _SHOWN else ""
    return FlowError(
        f"{topic.where}: topic {topic.topic} {why}: {', '.join(map(str, gaps[:_SHOWN]))}{more}",
        code=code,
        where=topic.where,
        hint=f"stop the run; if nobody can bring that back, say: headwater accept-gap {topic.name}",
    )


def committer(lake: Lake, table: Target) -> Committer:
    """The commit of the flow that reads a topic: with the table of its gaps, where one is accepted."""

    def open_target(name: str) -> Target:
        comment = f"Records that Kafka let go of before {table.place.name} had read them"
        return Target.shared(lake.create(name, GAPS, comment=comment, properties={}))

    return Committer(table, IntentFile(lake.flow_folder(table.place.name)), open_target=open_target)


def recover(commits: Committer) -> None:
    """Commit what a killed process had staged, a gap that was accepted, and seal what it had committed."""
    left = commits.unsealed()
    if left is not None and (left.staged is not None or commits.table.done(left)):
        commits.finish()


def accept(
    commits: Committer, topic: Topic, gaps: Sequence[Gap], on: Reached, why: str | None, fingerprint: str
) -> None:
    """Let a table go on behind gaps, and note them.

    Args:
        commits: as `committer` makes it.
        topic: the table's definition.
        gaps: what is accepted.
        on: where it goes on: see `Reached.behind`.
        why: in the words of who accepts it.
        fingerprint: the definition's.

    Raises:
        CommitError: something else wrote to a table.
    """
    table, name = commits.table, gaps_name(topic.name)
    intent = Intent(
        flow=topic.name,
        generation=table.place.generation,
        sequence=table.last(topic.name) + 1,
        consumed={topic.topic: {str(partition): at for partition, at in on.next.items()}},
        topics={topic.topic: on.id} if on.id else {},
        clock=times.text(times.now()),
        fingerprint=fingerprint,
    )

    def build(pinned: Intent) -> Built:
        lines = [
            {
                "topic": topic.topic,
                "partition": gap.partition,
                "first_offset": gap.first,
                "last_offset": gap.last,
                "reason": gap.reason,
                "why": why,
                "batch": pinned.sequence,
                "accepted_at": datetime.fromisoformat(pinned.clock),
            }
            for gap in gaps
        ]
        noted = commits.target(name).write(pa.Table.from_pylist(lines, GAPS), pinned.batch)
        return Built({name: noted, topic.name: []})

    commits.carry_out(intent, build)
