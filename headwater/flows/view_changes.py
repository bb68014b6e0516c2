"""What changes in a view, and what of its inputs has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.errors import CommitError
from headwater.flows.compared import Compared
from headwater.flows.context import Context
from headwater.storage import log, ranges
from headwater.storage.commit import Part
from headwater.storage.intent import Intent
from headwater.storage.ranges import Position


@dataclass(frozen=True)
class Changes:
    """What changes in the table, and in what its groups are made of.

    Attributes:
        parts: {table → rows to merge, or the files that are its first}, the view last.
        rows: how many of the view's.
        read: how many rows of the inputs the query got.
        files: {path of a file of the inputs that was read → its bytes}.
        keys: how many values that rows are found by, or groups, were touched; None: all was computed.
    """

    parts: Mapping[str, Part]
    rows: int
    read: int
    files: Mapping[str, int]
    keys: int | None = None

    def and_of(self, other: Changes) -> Changes:
        """These, and others of the same batch."""
        keys = max((each for each in (self.keys, other.keys) if each is not None), default=None)
        files = {**self.files, **other.files}
        return Changes(
            {**self.parts, **other.parts}, self.rows + other.rows, self.read + other.read, files, keys
        )

    @property
    def appended(self) -> list[str]:
        """The tables whose first rows these are."""
        return [name for name, part in self.parts.items() if isinstance(part, list)]


@dataclass(frozen=True)
class Tables:
    """A view, and the tables beside it of which its groups are made.

    Attributes:
        view: the view.
        state: what its groups are made of; None where they are not kept so.
        stage: what the inner part gives of which they are; None where they are of a table's rows.
    """

    view: Compared
    state: Compared | None = None
    stage: Compared | None = None


def of_input(
    context: Context, name: str, intent: Intent, before: Mapping[str, Any]
) -> list[log.DataFile] | None:
    """The files of what has changed in an input, as it was and as it is; None where that is not known.

    Args:
        context: the run.
        name: the input's.
        intent: the batch.
        before: what was consumed by the batch whose rows the view has.
    """
    place = context.lake.place(name)
    then, now = (Position.parse(consumed[name]) for consumed in (before, intent.consumed))
    if then.generation != now.generation or not now.reaches(then):
        return None
    if not ranges.is_as_read(place.path, then):
        return None
    changed: list[log.DataFile] = []
    try:
        for commit in log.commits(place.path, after=then.version, upto=now.version):
            if commit.expired or (commit.removed and not commit.changes):
                return None
            changed += commit.changes or commit.added
    except CommitError:  # the log was cleaned since
        return None
    return changed
