"""What readers need to know of a file so as not to read it: rows, and bounds of its plain columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

_LONGEST = 32  # characters; longer strings get no bounds


def of(file: Path) -> tuple[int, str]:
    """The rows of a Parquet file, and its statistics as Delta's log has them (JSON).

    Bounds come from the file's footer. Floating-point columns get none: NaN stands outside them.
    """
    footer = _footer(file)
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for at in range(footer.num_columns):
        chunks = [footer.row_group(group).column(at) for group in range(footer.num_row_groups)]
        name = footer.schema.column(at).path
        if "." in name or not all(chunk.is_stats_set for chunk in chunks):
            continue
        found = [chunk.statistics for chunk in chunks]
        if all(s.has_null_count for s in found):
            nulls[name] = sum(s.null_count for s in found)
        bounds = [(_end(s, "min"), _end(s, "max")) for s in found if s.has_min_max]
        if len(bounds) == len(found) and bounds and all(_plain(v) for pair in bounds for v in pair):
            low[name] = text(min(b[0] for b in bounds))
            high[name] = text(max(b[1] for b in bounds), up=True)
    told = {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    # raw: what Rust's Arrow makes of the escape of a character beyond U+1FFFF is another one
    return footer.num_rows, json.dumps(told, ensure_ascii=False)


def size(file: Path) -> int:
    """The bytes of all columns of a Parquet file, before compression."""
    footer = _footer(file)
    return sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))


def newest(file: Path, column: str) -> int | None:
    """The greatest value of a column of time, in epoch milliseconds, as the file's footer has it."""
    found = [chunk.statistics for chunk in _chunks(file, column)]
    times = [_end(s, "max") for s in found if s is not None and s.has_min_max]
    return max((int(time.replace(tzinfo=UTC).timestamp() * 1000) for time in times if time), default=None)


def span(file: Path, column: str) -> tuple[datetime, datetime] | None:
    """The least and the greatest value of a column of time (UTC); None where the footer lacks them."""
    found = [chunk.statistics for chunk in _chunks(file, column)]
    if not found or not all(s is not None and s.has_min_max for s in found):
        return None
    ends = [(_end(s, "min"), _end(s, "max")) for s in found]
    if not all(isinstance(end, datetime) for pair in ends for end in pair):
        return None
    return min(low for low, _ in ends).replace(tzinfo=UTC), max(high for _, high in ends).replace(tzinfo=UTC)


def payload(file: Path, column: str) -> int:
    """The bytes of a column, encoded but not compressed, as the file's footer has them."""
    return sum(int(chunk.total_uncompressed_size) for chunk in _chunks(file, column))


@lru_cache(maxsize=64)
def _footer(file: Path) -> pq.FileMetaData:
    """A written file's footer; no path is ever written twice."""
    return pq.read_metadata(file)


def _chunks(file: Path, column: str) -> list[Any]:
    """Those of a column; none where the file is older than it."""
    footer = _footer(file)
    columns = range(footer.num_columns)
    at = next((at for at in columns if footer.schema.column(at).path == column), None)
    return (
        [] if at is None else [footer.row_group(group).column(at) for group in range(footer.num_row_groups)]
    )


def words(stats: Mapping[str, Any]) -> str:
    """Which rows a file has, in words, as far as its statistics say: partitions, offsets and times."""
    low, high = stats.get("minValues") or {}, stats.get("maxValues") or {}

    def ends(name: str) -> Iterator[str]:
        if low.get(name) is not None and high.get(name) is not None:
            ends = (str(low[name]), str(high[name]))
            yield f"{name} {ends[0]}" if ends[0] == ends[1] else f"{name} {ends[0]} to {ends[1]}"

    times = [name for name in low if isinstance(low[name], str) and low[name][10:11] == "T"]
    times += [name for name in low if hasattr(low[name], "year")]
    return ", ".join(part for name in ("partition", "offset", *times) for part in ends(name))


def _end(found: Any, side: str) -> Any:
    """The least or the greatest value; None where it is a time that Python's can't hold (the year 10,000)."""
    try:
        return getattr(found, side)
    except (OverflowError, ValueError):
        return None


def _plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST
    if isinstance(value, datetime):
        return value.replace(tzinfo=None) <= datetime.max - timedelta(milliseconds=1)
    return isinstance(value, (int, date)) and not isinstance(value, bool)


def text(value: Any, *, up: bool = False) -> Any:
    """A bound as the log writes it; times have milliseconds, an upper bound the next one."""
    if isinstance(value, datetime):
        whole = value.replace(tzinfo=UTC, microsecond=value.microsecond // 1000 * 1000)
        if up and whole.microsecond != value.microsecond:
            whole += timedelta(milliseconds=1)
        return whole.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
