"""The files of a table as Arrow has them: of one that is open, and after one more commit.

delta-rs replays a log for each version that it is brought to, which takes it 3 ms and more; what one commit
adds and removes is known in a tenth of that. Where a commit says more than that, delta-rs is asked again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from headwater.storage import delta, pruning

_FILE = {
    "path": "path",
    "size_bytes": "size",
    "modification_time": "modificationTime",
}  # as the log calls them
_BOUNDS = {"min": "minValues", "max": "maxValues", "null_count": "nullCount"}
_CHUNKS = 64  # of a listing, before it is put together


def columns(table: pa.Schema) -> pa.Schema:
    """The columns of a listing, by those of the table.

    They are `path` (URL-encoded, below the table), `size_bytes`, `modification_time` (milliseconds of the
    epoch), and, NULL where they were not recorded, `num_records`, of each flat column
    `null_count.`, and of those that files have bounds of `min.` and `max.`.
    """
    flat = [each for each in table if not pa.types.is_nested(each.type)]
    flat = [each for each in flat if "." not in each.name]  # as delta-rs calls what is nested
    bounded = [field for field in flat if pruning.has_bounds(field.type)]
    return pa.schema(
        [
            ("path", pa.string()),
            *((name, pa.int64()) for name in ("size_bytes", "modification_time", "num_records")),
            *((f"null_count.{field.name}", pa.int64()) for field in flat),
            *((f"{end}.{field.name}", field.type) for end in ("min", "max") for field in bounded),
        ]
    )


def of(table: DeltaTable) -> pa.Table:
    """The files of a table that is open."""
    told, wanted = delta.adds(table), columns(pa.schema(table.schema().to_arrow()))
    lacking = pa.nulls(len(told))
    found = [told[name] if name in told.column_names else lacking for name in wanted.names]
    arrays = [each.cast(field.type) for each, field in zip(found, wanted, strict=True)]
    return pa.Table.from_arrays(arrays, schema=wanted)


def after(files: pa.Table, actions: Iterable[Mapping[str, Any]]) -> pa.Table | None:
    """The files of the next version; None: its commit says what delta-rs is to be asked for.

    Args:
        files: those of the version before, as `of` gives them.
        actions: what the commit says.
    """
    gone: list[str] = []
    come: list[Mapping[str, Any]] = []
    for action in actions:
        if "add" in action:
            come.append(action["add"])
        elif "remove" in action:
            gone.append(action["remove"]["path"])
        elif not action.keys() <= {"commitInfo", "txn", "cdc"}:
            return None
    try:
        new = _table(come, files.schema)
    except (pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # delta-rs says what is wrong with it
    replaced = pc.is_in(files["path"], pa.array([*gone, *new["path"].to_pylist()], pa.string()))
    stays = files.filter(pc.invert(replaced)) if pc.any(replaced).as_py() else files
    found = pa.concat_tables([stays, new])
    return found.combine_chunks() if found["path"].num_chunks > _CHUNKS else found


def _table(adds: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """What a commit says of the files that it adds."""
    told = [json.loads(add.get("stats") or "{}") for add in adds]
    arrays = []
    for field in schema:
        which, _, column = field.name.partition(".")
        values: list[Any]
        if which in _FILE:
            values = [add[_FILE[which]] for add in adds]
        elif which in _BOUNDS:
            values = [(stats.get(_BOUNDS[which]) or {}).get(column) for stats in told]
        else:
            values = [stats.get("numRecords") for stats in told]
        arrays.append(pa.array([_value(value, field.type) for value in values], field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _value(value: Any, kind: pa.DataType) -> Any:
    """A value as JSON has it, in a type of Arrow."""
    if value is None or not pa.types.is_temporal(kind):
        return value
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    time = datetime.fromisoformat(value)
    time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    return time if kind.tz else time.replace(tzinfo=None)
