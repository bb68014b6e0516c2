"""Partial results: of new rows, merged into the table of groups; of open windows, put together, and parted
into those that close and the others. A sum that is too large for its type is found before it is committed.

Windows of time that have the same keys and bounds become one. Sessions of the same keys that touch become one
(as Spark's `session_window` has it: the next begins no later than the last ends), so one row may take the
place of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame

from headwater.common import database, scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.errors import FlowError, Where
from headwater.planner.aggregate import BOUNDS, Aggregate, Output, outgrown, partial
from headwater.planner.event_time import NEVER
from headwater.storage import merging, pruning
from headwater.storage.identity import Identity
from headwater.storage.names import PARTIAL
from headwater.storage.target import GONE, Target

_START, _END = BOUNDS


def state_keys(aggregate: Aggregate) -> tuple[str, ...]:
    """The columns that identify the partial result of an open window."""
    if not aggregate.window:
        return aggregate.keys
    return (*(o.name for o in aggregate.outputs if o.kind == "key" and not o.window), *BOUNDS)


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
            raise _outgrown(names, where) from None
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
    """What becomes of a table's groups with a new partial result: changes, as `combine` has them.

    Raises:
        FlowError: a sum is too large for its type.
    """
    outputs = tuple(replace(output, window="") for output in aggregate.outputs)
    changes, _ = combine(Aggregate(outputs), held, fresh, NEVER, where)
    return changes


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
    keys = [quoted(name) for name in state_keys(aggregate)]
    plain = keys[: -len(BOUNDS)] if aggregate.window else keys
    within = plain if aggregate.window == "session" else keys
    told = [f"p.{key}" for key in ([*plain, "_session"] if aggregate.window == "session" else keys)]
    groups = f"GROUP BY {', '.join(told)}" if told else "HAVING count(*) > 0"  # without keys there is one
    names = ", ".join(map(quoted, held.schema.names))
    over = _due(aggregate, closing)
    with scratch.connection(held.nbytes + fresh.nbytes) as connection:
        connection.register("held", held)
        connection.register("fresh", fresh)
        kinds = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE held)").fetchall())
        values = ", ".join(
            f"CAST({value} AS {kinds[name]}) AS {quoted(name)}"
            for name, value in _values(aggregate, held.schema, kinds)
        )
        connection.execute(
            f"CREATE TEMP VIEW parts AS SELECT {names} FROM held "
            f"SEMI JOIN fresh ON {same('held', 'fresh', within)} UNION ALL SELECT {names} FROM fresh"
        )
        grouped = f"FROM ({_numbered(aggregate, plain)}) p {groups}"
        try:
            connection.execute(f"CREATE TEMP TABLE merged AS SELECT {values} {grouped}")
        except duckdb.Error:
            if too_large := _too_large(connection, held.schema, aggregate, grouped):
                raise _outgrown(too_large, where) from None
            raise
        connection.execute(
            f"CREATE TEMP VIEW now AS SELECT {names} FROM merged UNION ALL "
            f"SELECT {names} FROM held ANTI JOIN fresh ON {same('held', 'fresh', within)}"
        )
        outputs = ", ".join(quoted(output.name) for output in aggregate.outputs)
        closed = database.table(connection, f"SELECT {outputs} FROM now WHERE {over}")
        changes = database.table(
            connection,
            f"SELECT {names}, false AS {GONE} FROM merged WHERE NOT ({over}) UNION ALL "
            f"SELECT {names}, true FROM held ANTI JOIN (SELECT * FROM now WHERE NOT ({over})) still "
            f"ON {same('held', 'still', keys)}",
        )
    kept = pa.schema([held.schema.field(output.name) for output in aggregate.outputs])
    return changes.cast(held.schema.append(pa.field(GONE, pa.bool_()))), closed.cast(kept)


def _outgrown(names: Iterable[str], where: Where) -> FlowError:
    """What is said of sums that are too large for their types."""
    return FlowError(
        f"{where}: the sum {', '.join(names)} is too large for its type, so the batch is not committed",
        code="SUM_OUTGROWS_TYPE",
        where=where,
        hint=f"cast what it adds to DECIMAL(38, …) or DOUBLE, then run headwater rebuild {where.table}",
    )


def _too_large(
    connection: duckdb.DuckDBPyConnection, columns: pa.Schema, aggregate: Aggregate, grouped: str
) -> list[str]:
    """The sums that are too large for their types in some group."""
    limits = {
        output.name: 2.0**63 if pa.types.is_integer(column) else 10.0 ** (column.precision - column.scale)
        for output in aggregate.outputs
        if output.kind == "sum" and not pa.types.is_floating(column := columns.field(output.name).type)
    }
    each = "".join(f", sum(abs({quoted(name)}::DOUBLE)) AS _{at}" for at, name in enumerate(limits))
    most = "".join(f", max(_{at})" for at in range(len(limits)))
    found = connection.execute(f"SELECT 0{most} FROM (SELECT 0{each} {grouped})").fetchall()[0][1:]
    return [
        name
        for (name, limit), total in zip(limits.items(), found, strict=True)
        if total is not None and total >= limit * (1 - 1e-9)
    ]


def _values(aggregate: Aggregate, columns: pa.Schema, kinds: dict[str, str]) -> list[tuple[str, str]]:
    """(column, its value over a group), in order."""
    best = {output.name: _best(output, columns) for output in aggregate.outputs if output.k}
    found = []
    for output in aggregate.outputs:
        name = output.name
        if output.k:
            value = f"list_transform({best[name]}, lambda one: one.value)"
        elif output.kind in ("min", "max") and pa.types.is_nested(columns.field(name).type):
            placed = _placed(quoted(name), columns.field(name).type)
            value = f"arg_{output.kind}({quoted(name)}, {placed}) FILTER ({quoted(name)} IS NOT NULL)"
        else:
            value = _value(output, kinds[name])
        found.append((name, value))
    if PARTIAL in kinds:
        averages = [part for output in aggregate.outputs for part in _averages(output)]
        parts = averages + [part for output in aggregate.outputs for part in _orders(output, best)]
        found.append((PARTIAL, f"struct_pack({', '.join(parts)})"))
    bounds = [(_START, f"min({_START})"), (_END, f"max({_END})")]
    return found + (bounds if aggregate.window else [])


def _value(output: Output, kind: str) -> str:
    name = quoted(output.name)
    if output.kind == "key":
        ends = {"start": f"min({_START})", "end": f"max({_END})"}
        whole = f'struct_pack("start" := {ends["start"]}, "end" := {ends["end"]})'
        return {**ends, "all": whole, "": f"any_value({name})"}[output.window]
    if output.kind == "avg":
        total, count = _part(output, "sum"), _part(output, "count")
        return f"CASE WHEN sum({count}) > 0 THEN sum({total}) / sum({count}) END"
    by = _part(output, "by")
    if output.kind == "max_by":
        return f"last({name} ORDER BY {by} NULLS FIRST, {name} NULLS FIRST)"
    if output.kind == "min_by":
        return f"first({name} ORDER BY {by} NULLS LAST, {name} NULLS FIRST)"
    if output.kind == "sum" and kind.startswith("DECIMAL(38,"):
        scale = int(kind.removeprefix("DECIMAL(38,").rstrip(")"))  # DuckDB's own sum goes a digit too far
        most = f"CAST('{'9' * (38 - scale)}.{'9' * scale}' AS {kind})"
        return f"CASE WHEN abs(sum({name})) > {most} THEN error('too large') ELSE sum({name}) END"
    return f"{'sum' if output.kind == 'count' else output.kind}({name})"


def _averages(output: Output) -> list[str]:
    """The fields of `_partial` that an average has."""
    if output.kind != "avg":
        return []
    return [f"{quoted(f'{output.name}_{each}')} := sum({_part(output, each)})" for each in ("sum", "count")]


def _orders(output: Output, best: dict[str, str]) -> list[str]:
    """The field of `_partial` by which a value is chosen."""
    if output.k:
        return [f"{quoted(f'{output.name}_by')} := {best[output.name]}"]
    if output.kind not in ("max_by", "min_by"):
        return []
    return [f"{quoted(f'{output.name}_by')} := {output.kind[:3]}({_part(output, 'by')})"]


def _best(output: Output, columns: pa.Schema) -> str:
    """The k pairs of value and order that come first, of all partial results; NULL where none has any."""
    parts = _part(output, "by")
    pair = columns.field(PARTIAL).type.field(f"{output.name}_by").type.value_type
    placed = f"lambda one: struct_pack(place := {_placed('one', pair)}, pair := one)"
    order = "DESC" if output.kind == "max_by_k" else "ASC"
    placed = f"list_sort(list_transform(flatten(list({parts})), {placed}), '{order}')[1:{output.k}]"
    return f"CASE WHEN bool_or(len({parts}) > 0) THEN list_transform({placed}, lambda one: one.pair) END"


def _placed(value: str, kind: pa.DataType) -> str:
    """What orders values as Spark does: NULL comes before all else, in a struct and in an array, too."""
    inner = value
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        each = [_placed(f"{value}.{quoted(field.name)}", field.type) for field in fields]
        inner = f"struct_pack({', '.join(f'_{at} := {field}' for at, field in enumerate(each))})"
    elif pa.types.is_list(kind):
        inner = f"list_transform({value}, lambda each: {_placed('each', kind.value_type)})"
    return f"struct_pack(seen := {value} IS NOT NULL, value := {inner})"


def _part(output: Output, of: str) -> str:
    return f"{PARTIAL}.{quoted(f'{output.name}_{of}')}"


def _numbered(aggregate: Aggregate, keys: list[str]) -> str:
    """The partial results, those of one session with the same number."""
    if aggregate.window != "session":
        return "SELECT * FROM parts"
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    rows = "ROWS BETWEEN UNBOUNDED PRECEDING AND"
    before = f"max({_END}) OVER ({by}ORDER BY {_START}, {_END} {rows} 1 PRECEDING)"
    begins = f"SELECT *, CASE WHEN {_START} <= {before} THEN 0 ELSE 1 END AS _begins FROM parts"
    # Of parts with the same bounds that which begins a session is the first: those before it go to another.
    order = f"ORDER BY {_START}, {_END}, _begins DESC {rows} CURRENT ROW"
    return f"SELECT *, sum(_begins) OVER ({by}{order}) AS _session FROM ({begins})"
