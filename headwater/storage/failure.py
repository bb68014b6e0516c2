"""Why a flow stopped for good: `_flows/<flow>/<generation>/failed.json`, until it begins again.

A run goes on without it, so nothing else tells other processes: the table's lease is held as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from headwater.storage import json_file, store

_FILE = "failed.json"


@dataclass(frozen=True)
class Failure:
    """That a flow has stopped.

    Attributes:
        at: when (UTC).
        error: what it said, in a line: what is wrong, and what to do.
        code: of the error, where it is a known one.
    """

    at: datetime
    error: str
    code: str | None


def note(folder: Path, failure: Failure) -> None:
    """Keep it, in the folder of the flow."""
    store.of(folder).make(folder)
    json_file.write(folder / _FILE, {**asdict(failure), "at": failure.at.isoformat()})


def read(folder: Path) -> Failure | None:
    """What a flow's folder keeps; None: the flow has not failed since it began last.

    Raises:
        DamageError: it is not what was written.
    """
    try:
        kept = json_file.read(folder / _FILE, hint="remove it, and start the flow again")
    except FileNotFoundError:
        return None
    return Failure(datetime.fromisoformat(kept["at"]), kept["error"], kept["code"])


def forget(folders: Iterable[Path]) -> None:
    """Have it no more: a flow begins, or what its error may say of rows is erased."""
    for folder in folders:
        store.of(folder).delete(folder / _FILE)
