"""Asking the process that writes a table to do something: a file for the request, a file for the answer.

    _flows/<table>/<generation>/requests/<id>.json     what is asked for; renamed to <id>.taken by who does it
    _flows/<table>/<generation>/requests/<id>.answer   what came of it

Whoever holds the table's lease takes its requests: between two batches, or beside them where they are of
another kind, which has a folder of its own. A request that nobody takes is withdrawn by who asked; one that
was taken and dropped, as by a process that was killed or could not write the answer, is asked again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from headwater.common import times
from headwater.errors import FlowError, HeadwaterError, Where
from headwater.errors.causes import describe
from headwater.storage import json_file, lease, store

POLL = 0.05  # seconds


@dataclass(frozen=True)
class Request:
    """What to do with a table.

    Attributes:
        action: `replay` its open quarantined records, or `discard` them for good; `backfill` it; or
            `maintain` it.
        rule: only those that fail this rule; None: all.
        why: the reason of discarding.
        digest: of the project's files, as the one who asks reads them.
        pattern, format: of a backfill: which files, absolute, and what is in them.
    """

    action: Literal["replay", "discard", "backfill", "maintain"]
    rule: str | None = None
    why: str | None = None
    digest: str = ""
    pattern: str = ""
    format: str = "json"


Answer = dict[str, Any]  # {"done": …}, or {"error": why not, "code": …, "table": …, "file": …, "hint": …}


def ask(folder: Path, request: Request, kind: str = "requests") -> Answer | None:
    """The answer of the process that writes the table; None when there is none, or it ended unanswering.

    Args:
        folder: the flow's.
        request: what is asked for.
        kind: the folder below it that such requests wait in.
    """
    requests, there = folder / kind, store.of(folder)
    there.make(requests)
    made = requests / f"{uuid.uuid4().hex}.json"
    json_file.write(made, asdict(request))
    said = made.with_suffix(".answer")
    try:
        while not there.exists(said):
            if lease.holder(folder) is None and not there.exists(said):
                return None
            if not any(map(there.exists, (made, made.with_suffix(".taken"), said))):
                json_file.write(made, asdict(request))
            times.clock.sleep(POLL)
        return json_file.read(said, hint="ask again")
    finally:
        for left in (made, made.with_suffix(".taken"), said):
            there.delete(left)


def take(folder: Path, kind: str = "requests") -> Iterator[tuple[Request, Path]]:
    """The requests that wait, each taken, with the file that its answer goes to (see `answer`)."""
    there = store.of(folder)
    for name in sorted(name for name in there.names(folder / kind) if name.endswith(".json")):
        path = folder / kind / name
        taken = path.with_suffix(".taken")
        to = path.with_suffix(".answer")
        with suppress(FileNotFoundError):  # withdrawn
            there.rename(path, taken)
            try:
                request = Request(**json_file.read(taken, hint="ask again"))
            except (HeadwaterError, TypeError) as e:
                why = f"{taken}: the request can't be read, or is of another version of headwater: {e}"
                refuse(to, FlowError(why, code="REQUEST_FAILED", file=taken, hint="ask again"))
            else:
                yield request, to


def drop(folder: Path) -> None:
    """Drop what a process had taken that was killed; who holds the lease now begins with this."""
    there = store.of(folder)
    for path in there.find(folder, "*/*.taken"):
        there.delete(path)


def answer(to: Path, do: Callable[[], Any], where: Where) -> None:
    """Do what a request asks for, and answer it: by what was done, as JSON has it, or why it was not.

    Args:
        to: the answer's file, as `take` gives it.
        do: does it; what it raises is the answer, and is raised here where it is to end who serves.
        where: the definition that it is about.

    Raises:
        OSError: the answer can't be written; the request is dropped.
    """
    try:
        with attempted(where):
            said = {"done": do()}
    except HeadwaterError as e:
        refuse(to, e)
    except BaseException as e:  # a function that exits
        refuse(to, _failed(where, e))
        raise
    else:
        _write(to, said)


def refuse(to: Path, error: HeadwaterError) -> None:
    """Answer a request: it is not done.

    Raises:
        OSError: the answer can't be written; the request is dropped.
    """
    _write(to, {"error": error.message, **error.data()})


def refuse_all(folder: Path, error: HeadwaterError) -> None:
    """Answer all that is asked of a flow: it is not done.

    Raises:
        OSError: an answer can't be written; the request is dropped.
    """
    for _, to in take(folder):
        refuse(to, error)


@contextmanager
def attempted(where: Where) -> Iterator[None]:
    """What is done here, and may fail in ways that have no name.

    Raises:
        FlowError: it did; the message says why.
    """
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as e:
        raise _failed(where, e) from e


def _failed(where: Where, error: BaseException) -> FlowError:
    return FlowError(f"{where}: {describe(error)}", code="REQUEST_FAILED", where=where)


def _write(to: Path, said: Answer) -> None:
    try:
        json_file.write(to, said)
    except OSError:
        store.of(to).delete(to.with_suffix(".taken"))
        raise


def done(answer: Answer) -> Any:
    """What was done.

    Raises:
        FlowError: it was not.
    """
    if "error" in answer:
        said = {name: answer[name] for name in ("code", "table", "file", "hint")}
        raise FlowError(answer["error"], **said)
    return answer["done"]
