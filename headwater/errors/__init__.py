"""Every error a user can cause or must act on: one root, one line, what to do next, and the same as data."""

from __future__ import annotations

from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from headwater.errors.codes import Code


class Data(TypedDict):
    """What an error says, for machines; see `HeadwaterError`."""

    code: Code
    table: str | None
    file: str | None
    hint: str | None


class HeadwaterError(Exception):
    """The root of all errors raised on purpose.

    As text it is one line that names the table, the file and the fix. The command line prints it in
    red and exits with `exit_code`. What others raise is said by `headwater.errors.causes`.

    Args:
        message: what is wrong.
        code: which of the known errors it is (docs/errors.md); stable, where the text is not.
        table: the table, or the other flow, that it is about.
        file: the file, folder or address to look at first.
        where: both, of what is declared somewhere.
        hint: what to do about it; the text ends in it.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        code: Code,
        table: str | None = None,
        file: str | PathLike[str] | None = None,
        where: Where | None = None,
        hint: str | None = None,
    ) -> None:
        if where is not None:
            table, file = where.table, where.file
        super().__init__(message if hint is None else f"{message}; {hint}")
        self.message = message
        self.code = code
        self.table = table
        self.file = None if file is None else str(file)
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is pickled: workers of Spark and other processes send it."""
        return partial(type(self), **self.data()), (self.message,), self.__dict__

    def data(self) -> Data:
        """All but the message."""
        return {"code": self.code, "table": self.table, "file": self.file, "hint": self.hint}


class ConfError(HeadwaterError):
    """A configuration file is missing, is not YAML, or has an unknown or ill-typed key."""

    exit_code = 2


class ProjectError(HeadwaterError):
    """A definition is wrong: unknown source, cycle, duplicate name, wrong column, refused statement."""

    exit_code = 2


class LakeError(HeadwaterError):
    """What is asked for can't be done with what the lake holds now, though nothing is declared wrongly."""


class BrokerError(HeadwaterError):
    """The embedded broker could not be started, stopped or reached."""


class SetupError(HeadwaterError):
    """Something that set-up provides is missing: Java, a JVM library, disk or a port."""


class LeaseError(HeadwaterError):
    """Another process holds the table."""


class CommitError(HeadwaterError):
    """A commit could not be made, or the table's log does not say what the flow expects."""


class DamageError(CommitError):
    """A file that the engine keeps beside its tables is not what was written."""


class FlowError(HeadwaterError):
    """A flow stopped for a reason that trying again will not mend."""


class Unavailable(HeadwaterError):  # noqa: N818 (nothing is wrong but the time)
    """What lies outside the lake can't be reached now; trying again later may help."""


class BrokerUnavailable(BrokerError, Unavailable):  # noqa: N818 (as above)
    """Kafka does not answer."""


class SinkUnavailable(Unavailable):
    """What a sink writes to."""


class LookupUnavailable(Unavailable):
    """What a lookup asks."""


class StoreUnavailable(Unavailable):
    """The object store that files are read from."""


class QueryError(HeadwaterError):
    """A query names an unknown table or does what a query may not do."""


class ParameterError(QueryError):
    """A parameter of a query is missing, is not in it, or is not written as `name=value`."""

    exit_code = 2


class QualityError(HeadwaterError):
    """A table can't be validated or profiled as asked: no suite, no rows, no such version."""

    exit_code = 2


class Where(str):
    """Where something is declared, as messages begin: `file:line: table`; the text has no line where none is
    known. What it says is kept beside it; a line of 0 is none."""

    file: str
    table: str
    line: int

    def __new__(cls, text: str, file: str | PathLike[str] = "", table: str = "", line: int = 0) -> Where:
        made = super().__new__(cls, text)
        made.file, made.table, made.line = str(file), table, line
        return made

    @classmethod
    def of(cls, file: str | PathLike[str], table: str, line: int = 0) -> Where:
        """Where a table is declared; the line counts from 1."""
        return cls(f"{file}:{line}: {table}" if line else f"{file}: {table}", file, table, line)

    def said(self, text: str) -> Where:
        """The same in other words."""
        return Where(text, self.file, self.table, self.line)


NOWHERE = Where("")
