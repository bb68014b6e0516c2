"""What a function of a pipeline reads: found by calling it with stand-ins, then given to it in each batch.

`spark` (see `session`) asks the reading that is under way; there is one at a time in a thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from headwater.project import sql
from headwater.project.pipelines import kafka
from headwater.project.pipelines.kafka import Read
from headwater.project.pipelines.refusal import DEFINING, refuse
from headwater.project.pipelines.stand_in import StandIn
from headwater.project.sql.said import Refused, Statement

KAFKA = "kafka:"  # stands before the name of a topic that is read where a table's name is


class Reading(ABC):
    """What answers a function that asks for rows."""

    @abstractmethod
    def table(self, name: str, *, stream: bool) -> DataFrame:
        """The rows of a table, by the name that the function has for it."""

    @abstractmethod
    def topic(self, options: Mapping[str, str]) -> DataFrame:
        """The records of a topic, by the options with which Spark would read it."""

    @abstractmethod
    def query(self, text: str, args: Any) -> DataFrame:
        """The rows of a query."""

    @abstractmethod
    def made(self, make: Callable[[SparkSession], DataFrame]) -> DataFrame:
        """Rows that a session makes of nothing."""


@dataclass
class Recording(Reading):
    """What a function has asked for.

    Attributes:
        names: what it reads, by its own words, in order, and whether as a stream.
        topics: the topics among them, by the same words.
        watermark: the column that tells its time, and how much later rows may come.
        settings: what else its rows depend on, by the names of settings.
        stopped: why no more of it is known.
    """

    names: dict[str, bool] = field(default_factory=dict)
    topics: dict[str, Read] = field(default_factory=dict)
    watermark: tuple[str, str] | None = None
    settings: dict[str, str | None] = field(default_factory=dict)
    stopped: str = ""

    def table(self, name: str, *, stream: bool) -> DataFrame:
        self.names[name] = stream or self.names.get(name, False)
        return self._rows(stream=stream)

    def topic(self, options: Mapping[str, str]) -> DataFrame:
        read = kafka.read(options)
        self.topics[f"{KAFKA}{read.topic}"] = read
        self.names[f"{KAFKA}{read.topic}"] = True
        return self._rows(stream=True, topic=read)

    def query(self, text: str, args: Any) -> DataFrame:
        found = _parsed(text)
        for name in found.sources:
            self.table(name, stream=name in found.streams)
        for each in found.watermarks[:1]:
            self._tells_time(each.column, each.delay)
        return self._rows(stream=bool(found.streams))

    def made(self, make: Callable[[SparkSession], DataFrame]) -> DataFrame:
        return self._rows(stream=False)

    def _rows(self, *, stream: bool, topic: Read | None = None) -> DataFrame:
        return cast(DataFrame, StandIn(self._tells_time, stream=stream, topic=topic))

    def _tells_time(self, column: str, delay: str) -> None:
        if self.watermark not in (None, (column, delay)):
            refuse("has two watermarks", "keep one: a table tells the time by one column")
        self.watermark = (column, delay)


@dataclass(frozen=True)
class Given(Reading):
    """The rows that a function gets.

    Attributes:
        rows: by its own words for them.
        stopped: why it could be called with stand-ins up to there only.
    """

    rows: Mapping[str, DataFrame]
    stopped: str = ""

    def table(self, name: str, *, stream: bool) -> DataFrame:
        return self._rows_of(name)

    def topic(self, options: Mapping[str, str]) -> DataFrame:
        return self._rows_of(f"{KAFKA}{kafka.read(options).topic}")

    def query(self, text: str, args: Any) -> DataFrame:
        found = _parsed(text)
        frames = {f"s{at}": self._rows_of(name) for at, name in enumerate(found.sources)}
        return self._session.sql(found.template, args=args, **frames)

    def made(self, make: Callable[[SparkSession], DataFrame]) -> DataFrame:
        return make(self._session)

    def _rows_of(self, name: str) -> DataFrame:
        if name not in self.rows:
            refuse(
                f"reads {name}, which it did not without rows and columns"
                + (f": there it ended by {self.stopped}" if self.stopped else ""),
                "read all tables at its beginning, whatever their columns are",
                "READ_NOT_FORESEEN",
            )
        return self.rows[name]

    @property
    def _session(self) -> SparkSession:
        for frame in self.rows.values():
            return frame.sparkSession
        return SparkSession.active()


def _parsed(text: str) -> Statement:
    """What a query says."""
    try:
        return sql.select(text)
    except Refused as e:
        refuse(f"runs SQL that is no query: {e.message}", "write one SELECT; tables are declared, not made")


_UNDER_WAY: ContextVar[Reading | None] = ContextVar("_UNDER_WAY", default=None)


def under_way() -> Reading:
    """The reading that a function has been called for.

    Raises:
        ProjectError: there is none: the file itself reads.
    """
    found = _UNDER_WAY.get()
    if found is None:
        refuse("reads while the file is loaded", "read in the functions; write lists of values into the file")
    return found


@contextmanager
def begun(reading: Reading, table: str) -> Iterator[None]:
    """A function of a table is called in here."""
    was, defining = _UNDER_WAY.set(reading), DEFINING.set(table)
    try:
        yield
    finally:
        _UNDER_WAY.reset(was)
        DEFINING.reset(defining)


def noted(key: str, value: str | None) -> None:
    """A function has asked for a setting."""
    found = _UNDER_WAY.get()
    if isinstance(found, Recording):
        found.settings[key] = value


def is_recorded() -> bool:
    """Whether a function is called with stand-ins now."""
    return isinstance(_UNDER_WAY.get(), Recording)
