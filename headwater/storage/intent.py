"""The intent: what a flow is about to do, pinned in a small file before it does it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.common import json_file
from headwater.storage.lake import Lake

Shares = dict[str, list[list[int]]]  # {rule → [rows seen, rows that fail], the oldest first}


@dataclass(frozen=True)
class Intent:
    """One batch of one flow.

    Attributes:
        flow: the table it feeds.
        generation: the table's life that it feeds.
        sequence: the batch's number in that life, from 0.
        consumed: per input, how far it has been read when this batch is committed.
        files: what the batch reads, absolute paths; empty for a source flow.
        rows: how many rows those files hold, as the input's log says.
        size: their bytes, as it says, too.
        newest: Kafka's timestamp (epoch milliseconds) of the newest record in those files, where known.
        references: the version of each reference table that it reads.
        clock: the time of the batch, UTC, ISO 8601: what every "now" in it means.
        fingerprint: the definition's.
        staged: per target, the files that are written and only need committing; None while the batch
            is not built, or has one target alone, whose commit decides.
        sealed: whether all of it is done.
        shares: what the windows of the suite's shares hold with this batch; see `quality.measure`.
        event_time: how far event time has come with this batch; see `headwater.planner.event_time`.
        topics: {topic of Kafka that it reads → Kafka's id of it}, where known.
        prefix: sets the names of its files apart, where more than one flow writes the table.
    """

    flow: str
    generation: int
    sequence: int
    consumed: dict[str, Any]
    clock: str
    fingerprint: str
    files: list[str] = field(default_factory=list)
    rows: int = 0
    newest: int | None = None
    references: dict[str, str] = field(default_factory=dict)
    staged: dict[str, list[str]] | None = None
    sealed: bool = False
    shares: Shares = field(default_factory=dict)
    event_time: dict[str, Any] = field(default_factory=dict)
    prefix: str = ""
    size: int = 0
    topics: dict[str, str] = field(default_factory=dict)

    @property
    def batch(self) -> str:
        """The name of its files' folders: no other batch of the same table has it."""
        return f"{self.prefix}{self.sequence:012d}"


class IntentFile:
    """The intent of one flow on disk, replaced atomically; at most one is open at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "intent.json"

    def read(self) -> Intent | None:
        """The last intent; None before the first."""
        try:
            return Intent(**json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def write(self, intent: Intent) -> Intent:
        """Keep `intent` in place of the last; after a kill, one of the two is there, whole."""
        json_file.write(self._path, asdict(intent))
        return intent

    def seal(self, intent: Intent) -> None:
        """Note that the batch is done; what it read is in the table's log from here on."""
        self.write(replace(intent, sealed=True, files=[], staged=None))


def intents_of(lake: Lake) -> list[IntentFile]:
    """Those of all flows."""
    return [IntentFile(path.parent) for path in (lake.root / "_flows").glob("**/intent.json")]
