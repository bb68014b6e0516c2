"""How far an alert has read its topic: Spark's checkpoint says it, and a note in that says of which topic.

`offsets/7` says where batch 7 ends, `commits/7` that it is done, `sources/0/0` where the first one begins.
"""

from __future__ import annotations

import json
from pathlib import Path

from headwater.flows.gaps import Reached
from headwater.storage import json_file, store

_NOTE = "topic.json"
_OF_SPARK = ("offsets", "commits", "sources", "metadata")


class Checkpoint:
    """The checkpoint of one alert.

    Args:
        folder: where it lies.
        topic: the name of the topic.
    """

    def __init__(self, folder: Path, topic: str) -> None:
        self.folder, self._topic = folder, topic
        self._store = store.of(folder)

    @property
    def has_begun(self) -> bool:
        """Whether Spark goes on from it; a process that was killed amid its first batch leaves another."""
        return bool(self._numbers("offsets"))

    def reached(self) -> Reached | None:
        """Where the next batch begins; None where nothing is known of it."""
        note = self._note()
        done = max(self._numbers("commits"), default=None)
        said = self._offsets("sources/0/0" if done is None else f"offsets/{done}")
        found = said or (note.next if note else None)
        return Reached(note.id if note else "", found) if found else None

    def keep(self, id: str) -> None:
        """Note of which topic it is, where that is not known yet."""
        if (note := self._note()) is None or not note.id:
            self._write(Reached(id, note.next if note else {}))

    def begin(self, at: Reached) -> None:
        """Have one that has read nothing, and begins here."""
        for name in _OF_SPARK:
            path = self.folder / name
            self._store.delete_all(path) if path.is_dir() else self._store.delete(path)
        self._write(at)

    def _numbers(self, name: str) -> list[int]:
        return [int(each) for each in self._store.names(self.folder / name) if each.isdecimal()]

    def _offsets(self, name: str) -> dict[int, int] | None:
        """{partition → offset}, as the last line of one of Spark's files has them."""
        try:
            text = self._store.get(self.folder / name).decode()
        except FileNotFoundError:
            return None
        found = json.loads(text.splitlines()[-1])
        return {int(partition): int(at) for partition, at in found.get(self._topic, {}).items()}

    def _note(self) -> Reached | None:
        try:
            found = json_file.read(
                self.folder / _NOTE, hint="remove it: the alert goes on by Spark's checkpoint"
            )
        except FileNotFoundError:
            return None
        return Reached(found["id"], {int(partition): at for partition, at in found["begins"].items()})

    def _write(self, at: Reached) -> None:
        self._store.make(self.folder)
        json_file.write(self.folder / _NOTE, {"id": at.id, "begins": at.next})
