"""What the log and the files of a table say of it, without reading its rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from pyspark.sql.types import StructType

from headwater.storage import delta, log
from headwater.storage.lake import Place
from headwater.storage.names import PARTIAL


@dataclass(frozen=True)
class Summary:
    """What a table holds.

    Attributes:
        path: its Delta table.
        generation: which of its lives that is, from 1.
        version: the newest version.
        rows: how many it holds; None where a file's statistics lack the number.
        files: Parquet files of the newest version.
        bytes: their size.
        last_commit: when the newest version was made (UTC).
        flows: {flow → generation, sequence, consumed} as the newest commit has it.
    """

    path: Path
    generation: int
    version: int
    rows: int | None
    files: int
    bytes: int
    last_commit: datetime
    flows: dict[str, Any] = field(default_factory=dict)


def of(place: Place) -> Summary:
    """What the table at `place` holds, from its log."""
    table = delta.opened(place.path)
    commit = log.read(place.path, int(table.version()))
    actions = table.get_add_actions(flatten=True)  # as they are: to make them pyarrow's imports pandas
    recorded = "num_records" in actions.column_names
    counts = cast(list[int | None], actions["num_records"].to_pylist() if recorded else [])
    sizes = cast(list[int], actions["size_bytes"].to_pylist())
    return Summary(
        path=place.path,
        generation=place.generation,
        version=commit.version,
        rows=None if None in counts or len(counts) != len(sizes) else sum(count or 0 for count in counts),
        files=len(sizes),
        bytes=sum(sizes),
        last_commit=commit.at,
        flows=commit.flows,
    )


def columns(place: Place) -> dict[str, str]:
    """{column → type} of the table at `place` as readers see it; types as Spark writes them."""
    stored = json.loads(delta.opened(place.path).schema().to_json())
    return type_names(StructType.fromJson(stored))


def type_names(columns: StructType) -> dict[str, str]:
    """{column → type} without the column of partial results; types as Spark writes them."""
    return {field.name: field.dataType.simpleString() for field in columns if field.name != PARTIAL}


def changes_in_place(place: Place) -> bool:
    """Whether rows of the table at `place` change, which the engine keeps a change feed of."""
    return delta.keeps_changes(delta.opened(place.path))
