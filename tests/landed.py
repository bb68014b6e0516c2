"""A project that files feed, as the tests of files and of backfills use it."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headwater.connectors.files.ledger import Ledger
from headwater.flows.context import Context
from headwater.testing import Project

EPOCH = 1_760_000_400  # seconds; a whole number of minutes


class Landed(Project):
    """A project in a folder of its own; Kafka can't be asked how far its topics go.

    Args:
        root: the folder.
        spark: the session of its flows.
        files: {path → text}.
        shore: the folder of `landing`, if that is not the project's.
    """

    def __init__(
        self, root: Path, spark: SparkSession, files: Mapping[str, str], shore: Path | None = None
    ) -> None:
        super().__init__(files, root, spark=spark)
        self._shore, self._written = shore or root, 0

    def put(self, name: str, data: bytes) -> Path:
        """A file that is there at once, as a rename makes it; each is a second newer than the one before."""
        landed = name.startswith("landing/")
        path = (self._shore if landed else self.root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.parent / f".{path.name}"
        half.write_bytes(data)
        if landed:
            self._written += 1
            os.utime(half, (EPOCH + self._written,) * 2)
        half.rename(path)
        return path

    def land(self, name: str, *numbers: int, **fields: Any) -> Path:
        """A file of records, one for each number."""
        text = "".join(json.dumps({"n": n, "at": EPOCH + n, **fields}) + "\n" for n in numbers).encode()
        return self.put(f"landing/{name}", gzip.compress(text) if name.endswith(".gz") else text)

    def begun(self, *, once: bool = True) -> Context:
        """A new run."""
        return replace(self.restart().context, once=once)

    def drain(self, *names: str) -> Context:
        """Run these flows until nothing is left."""
        return self.restart().end(*names, close=False).context

    def found(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, those of bronze by where they stand."""
        return sorted(
            self.rows(table).dicts(), key=lambda row: (row.get("partition", 0), row.get("offset", 0))
        )

    def numbers(self, table: str) -> list[int]:
        """The records of a bronze table, by offset, each by its number."""
        rows = self.found(table)
        for partition in {row["partition"] for row in rows}:
            offsets = [row["offset"] for row in rows if row["partition"] == partition]
            assert offsets == list(range(len(offsets)))
        return [json.loads(row["value"])["n"] for row in rows]

    def outcomes(self, table: str) -> dict[str, str]:
        """{file → what came of it}, by name."""
        known = Ledger.of(self.lake, table).files
        return {Path(path).name: found.outcome for path, found in known.items()}

    def _new(self) -> Context:
        return replace(super()._new(), ends=None)


def times(*seconds: int) -> list[datetime]:
    return [datetime.fromtimestamp(EPOCH + each, UTC) for each in seconds]


def parquet(numbers: list[int]) -> bytes:
    """The same records as Parquet."""
    sink = pa.BufferOutputStream()
    columns = {"n": pa.array(numbers, pa.int64()), "at": pa.array([EPOCH + n for n in numbers], pa.int64())}
    pq.write_table(pa.table(columns), sink, row_group_size=10)
    return bytes(sink.getvalue())
