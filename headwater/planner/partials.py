"""Partial results: of new rows, merged into the table of groups; of open windows, put together, and parted
into those that close and the others. A sum that is too large for its type is found before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame

from headwater.common import database, scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.errors import Where
from headwater.planner.aggregate import BOUNDS, Aggregate, outgrown, partial
from headwater.planner.parts import Parts, refused
from headwater.storage import merging, pruning
from headwater.storage.identity import Identity
from headwater.storage.target import GONE, Target

_, _END = BOUNDS


def _due(aggregate: Aggregate, closing: int) -> str:
    """Which windows are over when all is there up to `closing` (microseconds since the epoch): SQL."""
    if not aggregate.window:
        return "false"
    last = 1 if aggregate.window == "time" else 0  # a window of time ends before its end
    return f"epoch_us({_END}) - {last} < {closing}"


def computed(
    through: Callable[[str, Callable[[DataFrame], DataFrame]], pa.Table],
    where: Where,
    marked: Callable[[DataFrame], DataFrame] | None = None,
    *,
    bounds: bool = False,
) -> pa.Table:
    """The partial result of the rows that a batch aggregates: the rows of `aggregate.partial`.

    Args:
        through: computes what a query, which has a name, gives of the batch's aggregate.
        where, marked, bounds: see `aggregate.partial`.

    Raises:
        FlowError: a sum is too large for its type.
    """
    name = f"partial {'marked ' if marked else ''}{'bounds' if bounds else ''}"
    try:
        return through(name, lambda frame: partial(frame, where, marked, bounds=bounds))
    except ArithmeticException:
        (found,) = through("outgrown", lambda frame: outgrown(frame, where)).to_pylist()
        if names := [name for name, is_large in found.items() if is_large]:
            raise refused(names, where) from None
        raise  # what it aggregates is computed: that failed


def merge(aggregate: Aggregate, table: Target, fresh: pa.Table, identity: Identity, where: Where) -> int:
    """Commit a new partial result to the table that holds the groups; the new version.

    Raises:
        FlowError: a sum is too large for its type.
        CommitError: the table is not at the version it was left at: another writer was here.
    """
    if merging.is_small(table.near(pruning.reaches(fresh, aggregate.keys))):
        changes = regrouped(
            aggregate, table.held(fresh.schema, pruning.reaches(fresh, aggregate.keys)), fresh, where
        )
        return table.change(changes, aggregate.keys, identity)
    try:
        return table.merge(fresh, aggregate.keys, aggregate.merged(fresh.schema), identity)
    except DeltaError:
        regrouped(aggregate, table.held(fresh.schema), fresh, where)  # says which sum it was
        raise


def regrouped(aggregate: Aggregate, held: pa.Table, fresh: pa.Table, where: Where) -> pa.Table:
    """What becomes of a table's groups with a new partial result: changes for `Target.change`, of which none
    goes.

    Raises:
        FlowError: a sum is too large for its type.
    """
    outputs = tuple(replace(output, window="") for output in aggregate.outputs)
    with scratch.connection(held.nbytes + fresh.nbytes) as connection:
        together = Parts(connection, Aggregate(outputs), held, fresh)
        with together.told(where):
            changes = database.table(connection, f"SELECT *, false AS {GONE} FROM ({together.merged})")
    return changes.cast(_changes(held.schema))


def combine(
    aggregate: Aggregate, held: pa.Table, fresh: pa.Table, closing: int, where: Where
) -> tuple[pa.Table, pa.Table]:
    """What becomes of the open windows with a new partial result.

    Args:
        aggregate: what is aggregated.
        held: the open windows: the aggregate's columns, `_partial` where it has one, `_start` and `_end`.
        fresh: the partial result of new rows, likewise. An aggregate without a window has no bounds there,
            and nothing of it closes.
        closing: what is over by this time closes (microseconds since the epoch, UTC).
        where: what errors name.

    Returns:
        The changes of `held`, for `Target.change`; and the rows of the windows that close.

    Raises:
        FlowError: a sum is too large for its type.
    """
    names = ", ".join(map(quoted, held.schema.names))
    over = _due(aggregate, closing)
    with scratch.connection(held.nbytes + fresh.nbytes) as connection:
        together = Parts(connection, aggregate, held, fresh)
        with together.told(where):
            connection.execute(f"CREATE TEMP TABLE merged AS {together.merged}")
        connection.execute(
            f"CREATE TEMP VIEW now AS SELECT {names} FROM merged UNION ALL "
            f"SELECT {names} FROM held ANTI JOIN fresh ON {together.alike}"
        )
        outputs = ", ".join(quoted(output.name) for output in aggregate.outputs)
        closed = database.table(connection, f"SELECT {outputs} FROM now WHERE {over}")
        changes = database.table(
            connection,
            f"SELECT {names}, false AS {GONE} FROM merged WHERE NOT ({over}) UNION ALL "
            f"SELECT {names}, true FROM held ANTI JOIN (SELECT * FROM now WHERE NOT ({over})) still "
            f"ON {same('held', 'still', together.keys)}",
        )
    kept = pa.schema([held.schema.field(output.name) for output in aggregate.outputs])
    return changes.cast(_changes(held.schema)), closed.cast(kept)


def _changes(columns: pa.Schema) -> pa.Schema:
    return columns.append(pa.field(GONE, pa.bool_()))
