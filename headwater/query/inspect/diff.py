"""What changed in a table between two of its versions.

Where its rows change in place, rows are told by their keys: added, removed, or changed, with what they were.
Elsewhere a row is in one of the versions alone, or in both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa

from headwater.common import scratch
from headwater.common.diff import Pair, Side, differ, only, same
from headwater.common.scratch import quoted
from headwater.errors import QueryError
from headwater.planner.changes import facts
from headwater.query import past
from headwater.query.sources import Sources
from headwater.storage import delta, log, summary
from headwater.storage.delta import files
from headwater.storage.lake import Lake
from headwater.storage.names import PARTIAL

Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class Row:
    """One row that is other.

    Attributes:
        change: what became of it.
        row: the row; of one that changed, its keys.
        before, after: of one that changed, the values of the columns that did.
    """

    change: Kind
    row: dict[str, Any]
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Diff:
    """How two versions of a table differ.

    Attributes:
        table: its name.
        before, after: the versions.
        keys: what tells rows apart; none where rows are only appended: then none counts as changed.
        columns: what only one of them has; rows are compared by those that both have.
        added, removed, changed: how many rows.
        rows: some of them: so many of each kind as was asked for.
    """

    table: str
    before: int
    after: int
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    added: int
    removed: int
    changed: int
    rows: list[Row]


def diff(sources: Sources, name: str, since: str, until: str | None, most: int) -> Diff:
    """How a version of a table differs from another.

    Args:
        sources: the tables.
        name: the table's.
        since, until: the versions: numbers, or ISO 8601 times (UTC unless they name a zone); see
            `headwater.query.run`. None: the newest.
        most: how many rows of each kind are shown.

    Raises:
        QueryError: an unknown table, a CSV file, no such version, or one whose files are gone.
    """
    (table,) = sources.named([name])
    if not table.is_delta:
        raise QueryError(
            f"{table.path}: {name} is a CSV file, which has no versions",
            code="TABLE_WITHOUT_VERSIONS",
            table=name,
            file=table.path,
        )
    before, after = (
        past.versions([table], at, option)[table.name] for at, option in ((since, "--from"), (until, "--to"))
    )
    assert before is not None
    after = log.head(table.path) if after is None else after
    keys = _keys(Lake(sources.conf.lake), table.name)
    try:
        with scratch.connection(scratch.MANY) as connection:
            pair = Pair(connection, _side(table.path, before), _side(table.path, after))
            parts = _by_keys(pair, keys) if keys else _whole()
            counts = {kind: pair.count(rows) for kind, rows in parts.items()}
            rows = [
                _row(kind, found, keys)
                for kind, sql in parts.items()
                for found in pair.execute(f"{sql} ORDER BY ALL LIMIT {most}").to_pylist()
            ]
    except duckdb.IOException as e:
        said = str(e).splitlines()[0]
        raise QueryError(
            f"{name}: files of version {before} or {after} are gone",
            code="VERSION_FILES_GONE",
            table=name,
            hint=f"name later ones ({said})",
        ) from None
    return Diff(table.name, before, after, keys, pair.apart, rows=rows, **{"changed": 0, **counts})


def _keys(lake: Lake, name: str) -> tuple[str, ...]:
    """What tells the table's rows apart, by what its flow keeps of its definition; nothing of what no flow
    writes, as of a reference table."""
    if name not in lake.places():
        return ()
    known = facts.read(lake.flow_folder(name)) or {}
    if known.get("kind") == "rows" or not summary.changes_in_place(lake.place(name)):
        return ()
    return tuple(known.get("keys", "").split(", ")) if known.get("keys") else ()


def _side(table: Path, version: int) -> Side:
    columns = pa.schema(delta.opened(table, version).schema().to_arrow())
    return Side(files(table, version), pa.schema([field for field in columns if field.name != PARTIAL]))


def _whole() -> dict[Kind, str]:
    return {"removed": only("old", "new"), "added": only("new", "old")}


def _by_keys(pair: Pair, keys: tuple[str, ...]) -> dict[Kind, str]:
    tables = "_old", "_new"  # no column's names: `SELECT _old` takes a whole row
    on_same = f"ON {same(*tables, map(quoted, keys))}"
    differs = differ(*tables, (quoted(name) for name in pair.columns if name not in keys))
    return {
        "removed": f"FROM old _old ANTI JOIN new _new {on_same}",
        "changed": "SELECT _old AS before, _new AS after "
        f"FROM old _old JOIN new _new {on_same} WHERE {differs}",
        "added": f"FROM new _new ANTI JOIN old _old {on_same}",
    }


def _row(kind: Kind, found: dict[str, Any], keys: tuple[str, ...]) -> Row:
    if kind != "changed":
        return Row(kind, found)
    before, after = found["before"], found["after"]
    other = [name for name in before if before[name] != after[name]]
    return Row(
        kind,
        {key: after[key] for key in keys},
        {name: before[name] for name in other},
        {name: after[name] for name in other},
    )
