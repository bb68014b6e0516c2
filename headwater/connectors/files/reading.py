"""A file that is being read, on through several batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headwater.connectors.files import formats
from headwater.connectors.files.file import File
from headwater.connectors.files.formats import Reader
from headwater.project.definitions import Format


@dataclass
class Reading:
    """A file that is being read.

    Attributes:
        file: which.
        brought: says where it can be read, once it is there.
        form: its format.
        done: how many of its records were read.
    """

    file: File
    brought: Callable[[], Path]
    form: Format
    done: int
    reader: Reader | None = field(default=None, init=False)

    def take(self, rows: int, size: int) -> tuple[pa.ChunkedArray, bool]:
        """Its next records, see `Reader.take`; the first time it is read to its end, if it is a long one.

        Raises:
            FileNotFoundError, StoreUnavailable, UNREADABLE: it can't be read.
        """
        path = self.brought()
        self.reader = self.reader or Reader(path, self.form, self.done)
        values, ended = self.reader.take(rows, size)
        if not ended and not self.done:
            formats.check(path, self.form)
        return values, ended
