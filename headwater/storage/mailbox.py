"""Asking the process that writes a table to do something: a file for the request, a file for the answer.

    _flows/<table>/<generation>/requests/<id>.json     what is asked for; renamed to <id>.taken by who does it
    _flows/<table>/<generation>/requests/<id>.answer   what came of it

Whoever holds the table's lease takes its requests: between two batches, or beside them where they are of
another kind, which has a folder of its own. A request that nobody takes is withdrawn by who asked; one that
was taken and dropped, as by a process that was killed or could not write the answer, is asked again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from headwater.common import times
from headwater.errors import FlowError, HeadwaterError
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
    answer = made.with_suffix(".answer")
    try:
        while not there.exists(answer):
            if lease.holder(folder) is None and not there.exists(answer):
                return None
            if not any(map(there.exists, (made, made.with_suffix(".taken"), answer))):
                json_file.write(made, asdict(request))
            times.clock.sleep(POLL)
        return json_file.read(answer, hint="ask again")
    finally:
        for left in (made, made.with_suffix(".taken"), answer):
            there.delete(left)


def take(folder: Path, kind: str = "requests") -> Iterator[tuple[Request, Path]]:
    """The requests that wait, each taken, with the file that its answer goes to (see `reply`)."""
    there = store.of(folder)
    for name in sorted(name for name in there.names(folder / kind) if name.endswith(".json")):
        path = folder / kind / name
        taken = path.with_suffix(".taken")
        answer = path.with_suffix(".answer")
        with suppress(FileNotFoundError):  # withdrawn
            there.rename(path, taken)
            try:
                request = Request(**json_file.read(taken, hint="ask again"))
            except (HeadwaterError, TypeError) as e:
                why = f"{taken}: the request can't be read, or is of another version of headwater: {e}"
                reply(answer, refusal(FlowError(why, code="REQUEST_FAILED", file=taken, hint="ask again")))
            else:
                yield request, answer


def drop(folder: Path) -> None:
    """Drop what a process had taken that was killed; who holds the lease now begins with this."""
    there = store.of(folder)
    for path in there.find(folder, "*/*.taken"):
        there.delete(path)


def reply(to: Path, answer: Answer) -> None:
    """Answer a request.

    Raises:
        OSError: the answer can't be written; the request is dropped.
    """
    try:
        json_file.write(to, answer)
    except OSError:
        store.of(to).delete(to.with_suffix(".taken"))
        raise


def refusal(error: HeadwaterError) -> Answer:
    """The answer that what was asked for was not done."""
    return {"error": error.message, **error.data()}


def done(answer: Answer) -> Any:
    """What was done.

    Raises:
        FlowError: it was not.
    """
    if "error" in answer:
        said = {name: answer[name] for name in ("code", "table", "file", "hint")}
        raise FlowError(answer["error"], **said)
    return answer["done"]
