"""The intent: what a flow is about to do, pinned in a small file before it does it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from headwater.errors import DamageError
from headwater.storage import json_file, log, store
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.open_table import OpenTable

_NAME = "intent.json"
_HINT = "put it back from a copy, or make the table anew: headwater rebuild {}"


@dataclass(frozen=True)
class Intent(Identity):
    """One batch of one flow: what its commits will say of themselves, and what they are made from.

    Attributes:
        fingerprint: the definition's.
        files: what the batch reads, absolute paths; empty for a source flow.
        inputs: of a flow that reads several tables version by version: {table → those of the files that are
            its}.
        size: their bytes, as the input's log says.
        references: the version of each reference table that it reads.
        staged: per target, the files that are written and only need committing; None while the batch
            is not built, or has one target alone, whose commit decides.
        appended: of the staged targets those whose files are added as they are; see `commit.Built`.
        sealed: whether all of it is done.
        prefix: sets the names of its files apart, where more than one flow writes the table.
        token: sets them apart from those of each other batch, of whatever table; given as it is pinned.
    """

    fingerprint: str = ""
    files: list[str] = field(default_factory=list)
    inputs: dict[str, list[str]] = field(default_factory=dict)
    size: int = 0
    references: dict[str, str] = field(default_factory=dict)
    staged: dict[str, list[str]] | None = None
    appended: list[str] = field(default_factory=list)
    sealed: bool = False
    prefix: str = ""
    token: str = ""

    @property
    def batch(self) -> str:
        """The name of its files' folders, which no other batch has: a file that bears it is of this one."""
        number = f"{self.prefix}{self.sequence:012d}"
        return f"{number}-{self.token}" if self.token else number


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
        json_file.write(self._path, vars(intent))
        return intent

    def seal(self, intent: Intent) -> None:
        """Note that the batch is done; what it read is in the table's log from here on."""
        done = replace(intent, sealed=True, files=[], inputs={}, staged=None, appended=[])
        self.write(done)


def intents_of(lake: Lake) -> list[IntentFile]:
    """Those of all flows, but for generations that are over."""
    found = store.of(lake.root).below(lake.root / "_flows", _NAME)
    return [IntentFile(path.parent) for path in found if not lake.is_over(path.parent)]
