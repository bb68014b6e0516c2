"""How far the table of each sink was sent, as the lake keeps it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.connectors.sinks import Position
from headwater.storage import json_file
from headwater.storage.lake import Lake


class Mark:
    """A position of a sink, in a file of its own in the folder of the sink's flow; it is read once.

    Args:
        lake: the lake.
        sink: the sink's name.
        name: the file's.

    Attributes:
        folder: where it lies.
    """

    def __init__(self, lake: Lake, sink: str, name: str) -> None:
        self.folder, self._sink = lake.flow_folder(sink), sink
        self._file: Path = self.folder / f"{name}.json"
        self._read: dict[str, Any] | None = None

    @property
    def at(self) -> Position:
        """The position; generation 0 where none is kept."""
        kept = self._kept()
        return Position(int(kept.get("generation", 0)), int(kept.get("version", -1)), kept.get("committed"))

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The keys by which rows were sent up to there; None where that was not kept."""
        return None if (keys := self._kept().get("keys")) is None else tuple(keys)

    @property
    def target(self) -> str | None:
        """What they were sent to, as `Sink.identity` says it; None where that is not known."""
        target: str | None = self._kept().get("target")
        return target

    def is_set(self) -> bool:
        """Whether a position is kept."""
        return self.at.generation > 0

    def set(self, at: Position, **how: Any) -> None:
        """Keep a position in place of the last.

        Args:
            at: the position.
            how: the `keys` and the `target` of what was sent up to there.
        """
        kept = {name: value for name, value in {**asdict(at), **how}.items() if value is not None}
        if kept != self._kept():
            self.folder.mkdir(parents=True, exist_ok=True)
            json_file.write(self._file, kept)
            self._read = kept

    def clear(self) -> None:
        """Keep none."""
        self._file.unlink(missing_ok=True)
        self._read = {}

    def _kept(self) -> dict[str, Any]:
        if self._read is None:
            try:
                hint = "put it back from a copy, or remove it: then the whole table is sent again"
                self._read = json_file.read(self._file, table=self._sink, hint=hint)
            except FileNotFoundError:
                self._read = {}
        return self._read


def sinks_of(lake: Lake, table: str) -> set[str]:
    """The sinks of a table of which the lake keeps something, be they declared now or not."""
    return {folder.name for folder in lake.flow_folder(table).parent.parent.glob(f"{table}->*")}


def sent(lake: Lake, sink: str) -> Mark:
    """What the sink was last sent, as far as the lake knows: some sinks know it themselves."""
    return Mark(lake, sink, "position")


def begun(lake: Lake, sink: str) -> Mark:
    """Up to where a batch goes that was begun and has not ended; version -1: it is the first, of many."""
    return Mark(lake, sink, "begun")
