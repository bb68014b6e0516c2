"""The intent: what a flow is about to do, pinned in a small file before it does it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.errors import DamageError
from headwater.storage import json_file, log, store
from headwater.storage.lake import Lake
from headwater.storage.open_table import OpenTable

_NAME = "intent.json"
_HINT = "put it back from a copy, or make the table anew: headwater rebuild {}"

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
        store.of(folder).make(folder)
        self._path = folder / _NAME
        self._flow = folder.parent.name

    def read(self) -> Intent | None:
        """The last intent; None before the first.

        Raises:
            DamageError: the file is not what was written.
        """
        try:
            return Intent(**json_file.read(self._path, table=self._flow, hint=_HINT.format(self._flow)))
        except FileNotFoundError:
            return None

    def left(self, table: OpenTable) -> Intent | None:
        """The last intent; of a damaged file none, if the tables know all that it can have said.

        They do where the flow has written none of them beyond its last batch: then its next batch is any.

        Raises:
            DamageError: a table beside has a batch that this one lacks.
        """
        try:
            return self.read()
        except DamageError:
            for place in Lake(self._path.parents[3]).places().values():
                theirs = log.flows(place.path) if place.name != table.place.name else {}
                if log.last(theirs, self._flow) > table.last(self._flow):
                    raise
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
    found = store.of(lake.root).below(lake.root / "_flows", _NAME)
    return [IntentFile(path.parent) for path in found]
