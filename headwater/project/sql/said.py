"""What a statement says, and why one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headwater.project.cdc.said import Cdc
from headwater.project.rule import Action

if TYPE_CHECKING:
    from headwater.errors.codes import Code

Kind = Literal["streaming table", "materialized view", "flow", "view"]


class Refused(Exception):  # noqa: N818 (nothing is wrong with us)
    """A text that is no definition.

    Args:
        message: what is wrong.
        code: which of the known errors it is.
        line: of the file, from 1; 0: it is in the message, or not known.
        table: the one it is about.
        hint: what to write instead.
    """

    def __init__(
        self, message: str, code: Code, *, line: int = 0, table: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.line, self.table, self.hint = message, code, line, table, hint


@dataclass(frozen=True)
class Expected:
    """`CONSTRAINT name EXPECT (condition) [ON VIOLATION …]`, and the line it begins in."""

    name: str
    condition: str
    action: Action
    line: int


@dataclass(frozen=True)
class Kafka:
    """`read_kafka(…)`: a topic, and the servers of its cluster; "": those of the environment."""

    topic: str
    servers: str


@dataclass(frozen=True)
class Changes:
    """`AUTO CDC [INTO into] FROM source …`.

    Attributes:
        source: the stream of changes, as written.
        cdc: what follows from them.
        into: the table that it feeds; "": the one whose statement it stands in.
        once: whether nothing is read that comes to the source later.
        name, comment: of the flow that it is; "" where it is none.
    """

    source: str
    cdc: Cdc
    into: str = ""
    once: bool = False
    name: str = ""
    comment: str = ""


@dataclass(frozen=True)
class Watermark:
    """`FROM STREAM stream WATERMARK column DELAY OF delay`, as written."""

    stream: str
    column: str
    delay: str


@dataclass(frozen=True)
class Taken:
    """A statement without what Spark's parser does not take.

    Attributes:
        text: the file's, all but this statement overwritten by spaces, and what is taken from it, too.
        line: where it begins, from 1.
        expectations, kafka, changes: what is taken from it.
        once: whether it inserts ONCE.
    """

    text: str
    line: int
    expectations: tuple[Expected, ...] = ()
    kafka: Kafka | None = None
    changes: Changes | None = None
    once: bool = False


@dataclass(frozen=True)
class Statement:
    """What a definition's text says.

    Attributes:
        kind: what it declares.
        name, comment: as written.
        line: where it begins, from 1.
        properties: the table's properties.
        template: its query, a field `{s0}`, `{s1}`, … for each of `sources`; "": it has none.
        at: line and column where that begins, from 0.
        sources: what it reads, as written, the streams first.
        streams: those it reads as streams.
        outer: whether it joins streams so that a row stands there until its partner comes, or goes then.
        watermarks: of its streams, those that say which of their columns is the event time.
        into: the table that a flow feeds.
        once: whether nothing is read that comes to its source later.
        expectations: of the table's rows.
        kafka: of a table that is a topic's.
        cdc: how it follows from changes, which are its only source.
    """

    kind: Kind
    name: str
    comment: str
    line: int
    properties: tuple[tuple[str, str], ...] = ()
    template: str = ""
    at: tuple[int, int] = (0, 0)
    sources: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    outer: bool = False
    watermarks: tuple[Watermark, ...] = ()
    into: str | None = None
    once: bool = False
    expectations: tuple[Expected, ...] = ()
    kafka: Kafka | None = None
    cdc: Cdc | None = None
