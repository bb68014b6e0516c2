"""Every error a user can cause or must act on: one root, one line, what to do next."""

from __future__ import annotations


class HeadwaterError(Exception):
    """The root of all errors raised on purpose.

    The message is one line that names the table, the file and the fix. The command line prints it in
    red and exits with `exit_code`; a traceback means a defect in the engine.
    """

    exit_code = 1


class ConfError(HeadwaterError):
    """A configuration file is missing, is not YAML, or has an unknown or ill-typed key."""

    exit_code = 2


class ProjectError(HeadwaterError):
    """A definition is wrong: unknown source, cycle, duplicate name, wrong column, refused statement."""

    exit_code = 2


class BrokerError(HeadwaterError):
    """The embedded broker could not be started, stopped or reached."""


class SetupError(HeadwaterError):
    """Something that set-up provides is missing: Java, a JVM library, disk or a port."""


class LeaseError(HeadwaterError):
    """Another process holds the table."""


class CommitError(HeadwaterError):
    """A commit could not be made, or the table's log does not say what the flow expects."""


class FlowError(HeadwaterError):
    """A flow stopped for a reason that trying again will not mend."""


class Unavailable(HeadwaterError):  # noqa: N818 (nothing is wrong but the time)
    """What lies outside the lake can't be reached now; trying again later may help."""


class BrokerUnavailable(BrokerError, Unavailable):  # noqa: N818 (as above)
    """Kafka does not answer."""


class SinkUnavailable(Unavailable):
    """What a sink writes to."""


class StoreUnavailable(Unavailable):
    """The object store that files are read from."""


class QueryError(HeadwaterError):
    """A query names an unknown table or does what a query may not do."""


class QualityError(HeadwaterError):
    """A table can't be validated or profiled as asked: no suite, no rows, no such version."""

    exit_code = 2


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its class."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def describe(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, HeadwaterError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:600]
