"""What reads a topic's records has in common, and where it begins: from the words of the command line to
offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from headwater.common import times
from headwater.connectors import kafka
from headwater.connectors.kafka.extent import Extent, since
from headwater.errors import ConfError
from headwater.project.conf import Conf, KafkaOptions
from headwater.project.definitions import Topic
from headwater.storage.intent import Intent

GROUP = "group:"


class Written(NamedTuple):
    """What a batch has written: files, their rows, the bytes of these rows' values, and Kafka's timestamp of
    the newest, in milliseconds since the epoch."""

    files: list[str]
    rows: int
    size: int
    newest: int | None


Write: TypeAlias = Callable[[Intent], Written]
Commit: TypeAlias = Callable[[dict[str, Any], Write], None]  # of the offsets after a batch, by topic


class Size:
    """How large a topic's records are, and so how many of them a batch may have.

    Args:
        conf: the environment.
        topic: the definition.
        client: options of the Python client.
    """

    def __init__(self, conf: Conf, topic: Topic, client: KafkaOptions) -> None:
        self._conf, self._topic, self._client = conf, topic, client
        self._bytes, self._is_asked = 0.0, False

    @property
    def of_record(self) -> float:
        """The bytes of a record's value, on average over those that were read last."""
        if not self._bytes and not self._is_asked:
            self._is_asked = True
            self._bytes = kafka.average_size(self._client, self._topic.topic)
        return self._bytes

    def note(self, rows: int, size: int) -> None:
        """Note how many bytes so many records had."""
        if rows:
            self._bytes = size / rows

    def admitted(self) -> int:
        """How many records a batch may have: the bound in rows, or fewer if they are large."""
        rows = self._topic.limits.max_rows_per_batch or self._conf.max_rows_per_batch
        return max(1, min(rows, int(self._conf.max_bytes_per_batch / max(self.of_record, 1.0))))


def milliseconds(start: str) -> int:
    """An ISO 8601 time as milliseconds since the epoch; one without a zone is UTC.

    Raises:
        ConfError: it is not such a time.
    """
    try:
        return int(times.parse(start).timestamp() * 1000)
    except ValueError:
        raise ConfError(
            f"--start {start} is no place to begin at",
            code="START_INVALID",
            hint=f"write earliest, latest, a time like 2026-01-31T06:00:00Z or {GROUP}NAME",
        ) from None


def check(start: str) -> None:
    """Whether these are words for where a source begins.

    Raises:
        ConfError: they are not.
    """
    if start not in ("earliest", "latest") and not (start.startswith(GROUP) and start != GROUP):
        milliseconds(start)


def first(start: str, client: KafkaOptions, topic: str, now: Extent) -> dict[int, int]:
    """{partition → the offset that is read first} of a source that has read nothing yet.

    Args:
        start: earliest, latest, a time (ISO 8601), or `group:` and the name of a consumer group, which has
            read the topic so far and committed how far: the source goes on from there.
        client: options of the Python client.
        topic: the source's name.
        now: from where to where it goes.

    Raises:
        BrokerError: Kafka can't be reached, or refuses.
        ConfError: the group has committed nothing of the topic, or Kafka has not kept what it has not read.
    """
    if start in ("earliest", "latest"):
        return dict(now.first if start == "earliest" else now.end)
    if start.startswith(GROUP):
        return _of_group(start.removeprefix(GROUP), client, topic)
    return since(client, topic, milliseconds(start))


def _of_group(group: str, client: KafkaOptions, topic: str) -> dict[int, int]:
    """{partition → offset of the next record that the group would read}; where it has read none, the first.

    Raises:
        ConfError: see `first`.
    """
    committed = kafka.committed(client, group, topic)
    if not any(own is not None for own, _, _ in committed.values()):
        raise ConfError(
            f"--start {GROUP}{group}: the group has committed no offset of {topic}",
            code="GROUP_WITHOUT_OFFSETS",
            hint="look at its name, or write earliest, latest or a time",
        )
    for partition, (own, low, high) in committed.items():
        if own is not None and not low <= own <= high:
            raise ConfError(
                f"--start {GROUP}{group}: the group stands at offset {own} of partition {partition} of "
                f"{topic}, and Kafka has {low} to {high}",
                code="GROUP_OFFSETS_EXPIRED",
                hint="write earliest, latest or a time",
            )
    return {partition: low if own is None else own for partition, (own, low, _) in committed.items()}
