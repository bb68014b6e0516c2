"""How the rows of one generation of a table differ from those of another, each at a version."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from headwater.common import scratch
from headwater.common.scratch import comparable, quoted
from headwater.errors import FlowError, first_line
from headwater.storage import log
from headwater.storage.lake import Lake, Place, files
from headwater.storage.names import (
    PARTIAL,
    late_name,
    quarantine_name,
    replay_name,
    resolved_name,
    state_name,
)
from headwater.storage.places import KEYS

_PLACE = ", ".join(map(quoted, KEYS))


@dataclass(frozen=True)
class Difference:
    """How two generations of a table differ.

    Attributes:
        table: its name.
        before, after: how many rows each has.
        gone: how many rows only the live one has; `new`: only the other. A row that changed counts in both.
        columns: what only one of them has; rows are compared by those that both have.
        only_before, only_after: some of these rows.
    """

    table: str
    before: int
    after: int
    gone: int
    new: int
    columns: tuple[str, ...] = ()
    only_before: tuple[dict[str, Any], ...] = ()
    only_after: tuple[dict[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.gone or self.new or self.columns)


@dataclass(frozen=True)
class Side:
    """Rows to compare.

    Attributes:
        files: which hold them; none where there is no table.
        columns: {column → its type}.
        settled: files of the ledger of the records among them that count no more; see
            `headwater.quality.quarantine`.
        where: which of the rows, in SQL; "": all.
    """

    files: list[str] = field(default_factory=list)
    columns: dict[str, pa.DataType] = field(default_factory=dict)
    settled: list[str] = field(default_factory=list)
    where: str = ""


NOTHING = Side()


def sides(lake: Lake, name: str, version: int | None, after: int = 0) -> Iterator[tuple[str, Side]]:
    """The rows of a table at a version, and those that its flow had written beside it by then.

    Args:
        lake: where it lies.
        name: the table.
        version: which; None: it is not there.
        after: only what versions after this one added.
    """
    places = lake.places()
    flows: dict[str, Any] = {}
    if version is not None:
        yield name, _side(places[name], version, after)
        flows = log.read(places[name].path, version).flows
    else:
        yield name, NOTHING
    started = log.read(places[name].path, after).flows if after else {}
    for other in (late_name(name), state_name(name), quarantine_name(name)):
        place = places.get(other)
        if place is None or version is None:
            yield other, NOTHING
            continue
        own = {"quarantined_at"} if other == quarantine_name(name) else set()
        upto, since = _by(place, name, flows), _by(place, name, started) if after else 0
        side = _side(place, upto, since, own)
        ledger = places.get(resolved_name(name)) if own else None
        if ledger is not None:
            side = Side(side.files, side.columns, files(ledger.path, _by(ledger, replay_name(name), flows)))
        yield other, side


def _by(beside: Place, flow: str, flows: dict[str, Any]) -> int:
    """The version of a table beside another one whose flows had come so far."""
    last = log.last(flows, flow)
    version = log.head(beside.path)
    while version > 0 and log.last(log.read(beside.path, version).flows, flow) > last:
        version -= 1
    return version


def _side(place: Place, version: int, after: int = 0, without: Set[str] = frozenset()) -> Side:
    schema = pa.schema(DeltaTable(place.path, version=version).schema().to_arrow())
    columns = {field.name: field.type for field in schema if field.name not in {PARTIAL, *without}}
    if not after:
        return Side(files(place.path, version), columns)
    commits = log.commits(place.path, after=after, upto=version)
    return Side([file.path for commit in commits for file in commit.added], columns)


def compare(name: str, live: Side, built: Side, limit: int = 0) -> Difference:
    """How the rows of two sides differ; of those that do, so many are shown.

    Raises:
        FlowError: a file can't be read.
    """
    common = [column for column in live.columns if column in built.columns]
    apart = set(live.columns) ^ set(built.columns) if live.columns and built.columns else set()
    kinds = {**live.columns, **built.columns}
    values = ", ".join(comparable(column, kinds[column]) for column in common or kinds)
    with scratch.connection() as connection:

        def ask(text: str) -> list[dict[str, Any]]:
            try:
                found: list[dict[str, Any]] = connection.execute(text).to_arrow_table().to_pylist()
                return found
            except duckdb.Error as e:
                raise FlowError(
                    f"{name}: its rows can't be compared: {first_line(e)}", code="NOT_COMPARABLE", table=name
                ) from e

        def only(one: Side, other: Side) -> tuple[int, tuple[dict[str, Any], ...]]:
            if not one.files:
                return 0, ()
            text = _rows(one, values)
            if other.files:
                text += f" EXCEPT ALL {_rows(other, values)}"
            count = int(ask(f"SELECT count(*) AS n FROM ({text})")[0]["n"])
            some = ask(f"SELECT * FROM ({text}) ORDER BY ALL LIMIT {limit}") if count and limit else []
            return count, tuple(some)

        before, after = (
            int(ask(_rows(side, "count(*) AS n"))[0]["n"]) if side.files else 0 for side in (live, built)
        )
        gone, only_before = only(live, built)
        new, only_after = only(built, live)
    return Difference(name, before, after, gone, new, tuple(sorted(apart)), only_before, only_after)


def _rows(side: Side, values: str) -> str:
    text = f"SELECT {values} FROM {_read(side.files)}"
    if side.where:
        return f"{text} WHERE {side.where}"
    if not side.settled:
        return text
    done = f"SELECT {_PLACE} FROM {_read(side.settled)} WHERE outcome <> 'discarded'"
    return f"{text} ANTI JOIN ({done}) USING ({_PLACE})"


def _read(paths: list[str]) -> str:
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return f"read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"
