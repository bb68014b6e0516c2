"""What any error says in one line, ours, Python's or Java's: its root cause, and the next step if known."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.errors import (
    BrokerError,
    BrokerUnavailable,
    ConfError,
    DamageError,
    Data,
    FlowError,
    HeadwaterError,
    SetupError,
    Where,
)

if TYPE_CHECKING:
    from headwater.errors.codes import Code

_CALL = re.compile(r"\AAn error occurred while calling .*?\n: ", re.DOTALL)  # py4j's own words
_CAUSE = re.compile(r"^Caused by: ", re.MULTILINE)
_FRAMES = re.compile(r"\n\s+(?:at [\w.$]+[/(]|\.\.\. \d+ more)")
_HEAD = re.compile(r"([\w.$]+)(?:: (.*))?\Z", re.DOTALL)
_PYTHON = re.compile(r"^\w[\w.]*(?:Error|Exception|Interrupt)\b.*$", re.MULTILINE)
_STATE = re.compile(r"\.?\s*SQLSTATE: \w{5}")  # which says nothing to people
_LINE = re.compile(r"\bline (\d+)\b")
_LONGEST = 600


class _Known(NamedTuple):
    """A cause that is recognised by what is said of it, wherever that comes from."""

    kind: type[HeadwaterError]
    code: Code
    said: re.Pattern[str]
    hint: str


_KNOWN = (
    _Known(
        SetupError,
        "DISK_FULL",
        re.compile(r"No space left on device|Disk quota exceeded|os error (?:28|122)\b"),
        "make room on its disk, then run again",
    ),
    _Known(
        SetupError,
        "FILE_SYSTEM_READ_ONLY",
        re.compile(r"Read-only file system|os error 30\b"),
        "mount it writable, or name another folder as `lake` in conf/<env>.yaml",
    ),
    _Known(
        SetupError,
        "PERMISSION_DENIED",
        re.compile(r"Permission denied|AccessDeniedException|AccessControlException|os error 13\b"),
        "let this process's user read and write it",
    ),
    _Known(
        SetupError,
        "OUT_OF_MEMORY",
        re.compile(r"\bOutOfMemoryException: "),  # DuckDB's
        "raise `duckdb.memory` or `duckdb.disk` in conf/<env>.yaml",
    ),
    _Known(
        SetupError,
        "OUT_OF_MEMORY",
        re.compile(r"OutOfMemoryError|MemoryError\b|Cannot allocate memory"),
        "raise `memory` in conf/<env>.yaml, or lower `max_rows_per_batch` and `max_bytes_per_batch`",
    ),
    _Known(
        FlowError,
        "RECORDS_GONE",
        re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRangeException"),
        "let the topic keep its records longer than nobody reads them (`retention.ms`)",
    ),
    _Known(
        BrokerError,
        "LOGIN_REFUSED",
        re.compile(
            r"(?:Sasl|Ssl)AuthenticationException|SSLHandshakeException|LoginException"
            r"|code=(?:_AUTHENTICATION|SASL_AUTHENTICATION_FAILED|_SSL)\b"
        ),
        "mend the user, the password or the certificates under `kafka` and `librdkafka` in conf/<env>.yaml",
    ),
    _Known(
        ConfError,
        "CONF_INVALID",
        re.compile(r"code=_INVALID_ARG\b"),
        "mend it under `kafka` or `librdkafka` in conf/<env>.yaml",
    ),
    _Known(
        BrokerUnavailable,
        "HOST_UNKNOWN",
        re.compile(r"UnknownHostException|No resolvable bootstrap urls|code=_RESOLVE\b"),
        "mend the name (`bootstrap.servers` in conf/<env>.yaml), or see that names are resolved here",
    ),
    _Known(
        DamageError,
        "FILE_DAMAGED",
        re.compile(r"FAILED_READ_FILE\.NO_HINT\]"),
        "headwater verify says whose it is, what is lost, and the way back",
    ),
)
_READ = re.compile(r"while reading file (?:file:/*)?(/.+?)\.\s+SQLSTATE")  # Spark's words


def known(error: BaseException) -> HeadwaterError | None:
    """An error of ours, or what stands for another's whose cause is recognised; None for the rest."""
    if isinstance(error, HeadwaterError):
        return error
    chain = _chain(error)
    text = "\n".join(f"{kind}: {message}" for kind, message in chain)
    for found in _KNOWN:
        if found.said.search(text):
            file, said = getattr(error, "filename", None), _line(*chain[-1])
            if read := _READ.search(text) if found.code == "FILE_DAMAGED" else None:
                file, said = read[1], f"{read[1]} can't be read: {said}"
            return found.kind(said, code=found.code, file=file, hint=found.hint)
    return None


def data_of(error: BaseException) -> Data | None:
    """What an error says, for machines; None where it is none of ours and its cause is not recognised."""
    found = known(error)
    return None if found is None else found.data()


def describe(error: BaseException) -> str:
    """An error in one line: ours as it is; of another its root cause, class and message, and the way out."""
    found = known(error)
    return _line(*_chain(error)[-1]) if found is None else str(found)


def raised_at(error: Exception, where: Where) -> Where:
    """Where something is declared, with the line of its file that was at work when an error was raised."""
    own = Path(where.file).parts
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if own and Path(frame.filename).parts[-len(own) :] == own
    ]
    return Where.of(where.file, where.table, lines[-1]) if lines and lines[-1] else where


def asked_at(said: str, where: Where) -> Where:
    """`file:line: table`, the line that Spark's message about a query names; `where`, if it names none."""
    at = _LINE.search(said)
    return Where.of(where.file, where.table, int(at[1])) if at else where


def first_line(error: Exception) -> str:
    """The first line of what an error's root cause says, or its class."""
    kind, message = _chain(error)[-1]
    return _first(message) or kind


def _line(kind: str, message: str) -> str:
    raised = _PYTHON.findall(message) if "Traceback (most recent call last)" in message else []
    said = raised[-1] if raised else f"{kind}: {_first(message)}".removesuffix(": ")
    return str(said)[:_LONGEST]


def _first(text: str) -> str:
    return _STATE.sub("", next((line.strip() for line in text.splitlines() if line.strip()), "")).rstrip("; ")


def _chain(error: BaseException) -> list[tuple[str, str]]:
    """The class and message of an error and, where it is Java's, of its causes; the root is the last."""
    own = type(error).__name__
    try:
        text = str(error)
    except Exception:  # the JVM that would say it has ended
        return [(own, "")]
    # PySpark's errors keep their trace beside the message, py4j's have it there.
    trace = str(getattr(error, "_stackTrace", None) or text)
    causes = [_FRAMES.split(part, maxsplit=1)[0].strip() for part in _CAUSE.split(trace)]
    if len(causes) == 1 and not _CALL.match(text):
        return [(own, text)]
    found = []
    for cause in causes:
        head = _HEAD.match(_CALL.sub("", cause))
        kind, message = (head[1], head[2] or "") if head else (own, cause)
        found.append((re.split(r"[.$]", kind)[-1], message))
    return found
