"""How far an alert has read its topic: Spark's checkpoint says it, and a note in that says of which topic.

`offsets/7` says where batch 7 ends, `commits/7` that it is done, `sources/0/0` where the first one begins.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from headwater.errors import DamageError
from headwater.flows.gaps import Reached
from headwater.storage import json_file, store

_HINT = "remove the folder of the checkpoint: the alert then begins where `headwater run --start` says"


@dataclass(frozen=True)
class _Note:
    """What Spark does not note.

    Attributes:
        topic: whose offsets these are.
        id: Kafka's, of the topic; "": not known.
        begins: {partition → offset} before the first batch; empty: not known.
        is_alone: whether what Spark has noted is not valid: it is about to be removed.
    """

    topic: str
    id: str
    begins: dict[int, int]
    is_alone: bool = False


class Checkpoint:
    """The checkpoint of one alert.

    Args:
        folder: where it lies.
        alert: the alert's name.
        topic: the name of the topic.
    """

    def __init__(self, folder: Path, alert: str, topic: str) -> None:
        self.folder, self._alert, self._topic = folder, alert, topic
        self._store = store.of(folder)

    def has_begun(self) -> bool:
        """Whether Spark goes on from it; a process that was killed amid its first batch leaves another."""
        note = self._note()
        return not (note and note.is_alone) and bool(self._numbers("offsets"))

    def reached(self) -> Reached | None:
        """Where the next batch begins; None where nothing is known of it.

        Raises:
            DamageError: one of its files is not what was written.
        """
        note = self._note()
        said = None if note and note.is_alone else self._said_by_spark()
        found = said or (note.begins if note else None)
        return Reached(note.id if note else "", found) if found else None

    def keep(self, id: str) -> None:
        """Note of which topic it is, where that is not known yet."""
        if (note := self._note()) is None or not note.id:
            self._write(_Note(self._topic, id, note.begins if note else {}))

    def begin(self, at: Reached) -> None:
        """Have one that has read nothing, and begins here."""
        self._write(_Note(self._topic, at.id, at.next, is_alone=True))
        for name in ("offsets", "commits", "sources"):
            self._store.delete_all(self.folder / name)
        self._store.delete(self.folder / "metadata")
        self._write(_Note(self._topic, at.id, at.next))

    def _numbers(self, name: str) -> list[int]:
        return [int(each) for each in self._store.names(self.folder / name) if each.isdecimal()]

    def _said_by_spark(self) -> dict[int, int] | None:
        """{partition → offset}; None where it says nothing of the topic."""
        done = max(self._numbers("commits"), default=None)
        file = self.folder / ("sources/0/0" if done is None else f"offsets/{done}")
        try:
            lines = self._store.get(file).decode().splitlines()
            found = json.loads(lines[-1]).get(self._topic, {})
            return {int(partition): int(at) for partition, at in found.items()} or None
        except FileNotFoundError:
            return None
        except (ValueError, IndexError, AttributeError):
            raise DamageError(
                f"{file} is not what Spark has written, or not in a form that is known",
                code="NOTE_DAMAGED",
                table=self._alert,
                file=file,
                hint=_HINT,
            ) from None

    def _note(self) -> _Note | None:
        """None where there is none of this topic."""
        try:
            found = json_file.read(self.folder / "topic.json", table=self._alert, hint=_HINT)
        except FileNotFoundError:
            return None
        begins = {int(partition): int(at) for partition, at in found.pop("begins").items()}
        note = _Note(**found, begins=begins)
        return note if note.topic == self._topic else None

    def _write(self, note: _Note) -> None:
        self._store.make(self.folder)
        json_file.write(self.folder / "topic.json", asdict(note))
