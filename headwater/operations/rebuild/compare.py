"""How the rows of one generation of a table differ from those of another, each at a version."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from headwater.common import scratch
from headwater.common.diff import NOTHING, Name, Pair, Side, only
from headwater.common.scratch import quoted
from headwater.errors import FlowError
from headwater.errors.causes import first_line
from headwater.storage import delta, log
from headwater.storage.delta import files
from headwater.storage.lake import Lake, Place
from headwater.storage.names import (
    PARTIAL,
    late_name,
    quarantine_name,
    resolved_name,
    stage_name,
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
        gone: how many rows only the live one has; `new`: only the other, those aside that the live one may
            have let go of by its retention. A row that changed counts in both.
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
    for other in (late_name(name), state_name(name), stage_name(name), quarantine_name(name)):
        place = places.get(other)
        if place is None or version is None:
            yield other, NOTHING
            continue
        own = {"quarantined_at"} if other == quarantine_name(name) else set()
        upto = log.not_past(place.path, flows).version
        since = log.not_past(place.path, started).version if after else 0
        side = _side(place, upto, since, own)
        ledger = places.get(resolved_name(name)) if own else None
        if ledger is not None:
            settled = files(ledger.path, log.not_past(ledger.path, flows).version)
            side = replace(side, which=_unsettled(settled))
        if own and not since:  # what commits have added is all of it, though it went since
            side = replace(side, lacks=_let_go(place, upto))
        yield other, side


def _let_go(quarantine: Place, version: int) -> str:
    """Which records a quarantine may have no more, as they were kept long enough: none came into it before it
    came to bronze, so all that came there later are kept."""
    before = log.expired(quarantine.path, version)
    return f"ingested_at < TIMESTAMPTZ '{before.isoformat()}'" if before else ""


def _side(place: Place, version: int, after: int = 0, without: Set[str] = frozenset()) -> Side:
    schema = pa.schema(delta.opened(place.path, version).schema().to_arrow())
    columns = pa.schema([field for field in schema if field.name not in {PARTIAL, *without}])
    if not after:
        return Side(files(place.path, version), columns)
    commits = log.commits(place.path, after=after, upto=version)
    return Side([file.path for commit in commits for file in commit.added], columns)


def compare(name: str, live: Side, built: Side, limit: int = 0) -> Difference:
    """How the rows of two sides differ; of those that do, so many are shown.

    Raises:
        FlowError: a file can't be read.
    """
    # Rows of a table that is not there are compared by the columns of the other.
    old = replace(live, columns=live.columns or built.columns)
    new = replace(built, columns=built.columns or live.columns)

    def only_in(one: Name, other: Name, lacks: str) -> tuple[int, tuple[dict[str, Any], ...]]:
        rows = f"FROM ({only(one, other)}) WHERE NOT ({lacks or 'false'})"
        count = pair.count(rows)
        shown = pair.execute(f"{rows} ORDER BY ALL LIMIT {limit}").to_pylist() if count and limit else []
        return count, tuple(shown)

    with scratch.connection(scratch.MANY) as connection:
        try:
            pair = Pair(connection, old, new)
            before, after = pair.count("FROM old"), pair.count("FROM new")
            gone, only_before = only_in("old", "new", new.lacks)
            came, only_after = only_in("new", "old", old.lacks)
        except duckdb.Error as e:
            raise FlowError(
                f"{name}: its rows can't be compared: {first_line(e)}", code="NOT_COMPARABLE", table=name
            ) from e
    return Difference(name, before, after, gone, came, pair.apart, only_before, only_after)


def _unsettled(ledger: list[str]) -> str:
    """Which records of a quarantine still count; see `headwater.quality.quarantine`."""
    if not ledger:
        return ""
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in ledger)
    read = f"read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"
    return f"ANTI JOIN (SELECT {_PLACE} FROM {read} WHERE outcome <> 'discarded') USING ({_PLACE})"
