"""The query that puts partial results together, as DuckDB is asked it: of each column its value over a group.

Windows of time that have the same keys and bounds become one. Sessions of the same keys that touch become one
(as Spark's `session_window` has it: the next begins no later than the last ends), so one row may take the
place of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from headwater.common import scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.errors import FlowError, Where
from headwater.planner.aggregate import BOUNDS, Aggregate, Output
from headwater.storage.names import PARTIAL

_START, _END = BOUNDS


def state_keys(aggregate: Aggregate) -> tuple[str, ...]:
    """The columns that identify the partial result of an open window."""
    if not aggregate.window:
        return aggregate.keys
    return (*(o.name for o in aggregate.outputs if o.kind == "key" and not o.window), *BOUNDS)


class Parts:
    """Partial results, those that are held and fresh ones, as `held` and `fresh` of a connection.

    Attributes:
        keys: the columns that identify one, as DuckDB reads them.
        alike: on which conditions a row of `held` and one of `fresh` may be put together: SQL.
        merged: what becomes of the fresh ones, and of those that are held and alike: a query.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, aggregate: Aggregate, held: pa.Table, fresh: pa.Table
    ) -> None:
        connection.register("held", held)
        connection.register("fresh", fresh)
        self._connection, self._aggregate, self._columns = connection, aggregate, held.schema
        self.keys = [quoted(name) for name in state_keys(aggregate)]
        is_session = aggregate.window == "session"
        plain = self.keys[: -len(BOUNDS)] if aggregate.window else self.keys
        self.alike = same("held", "fresh", plain if is_session else self.keys)
        told = [f"p.{key}" for key in ([*plain, "_session"] if is_session else self.keys)]
        groups = f"GROUP BY {', '.join(told)}" if told else "HAVING count(*) > 0"  # without keys there is one
        names = ", ".join(map(quoted, held.schema.names))
        old = f"SELECT {names} FROM held SEMI JOIN fresh ON {self.alike}"
        every = f"{old} UNION ALL SELECT {names} FROM fresh"
        self._grouped = f"FROM ({_numbered(every, plain) if is_session else every}) p {groups}"
        kinds = scratch.kinds(held.schema)
        values = (
            f"CAST({value} AS {kinds[name]}) AS {quoted(name)}"
            for name, value in _values(aggregate, held.schema, kinds)
        )
        self.merged = f"SELECT {', '.join(values)} {self._grouped}"

    @contextmanager
    def told(self, where: Where) -> Iterator[None]:
        """Say of a query of `merged` that fails which sums are too large for their types, if some are.

        Raises:
            FlowError: they are.
        """
        try:
            yield
        except duckdb.Error:
            if too_large := _too_large(self._connection, self._columns, self._aggregate, self._grouped):
                raise refused(too_large, where) from None
            raise


def refused(names: Iterable[str], where: Where) -> FlowError:
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


def _numbered(parts: str, keys: list[str]) -> str:
    """The partial results that a query gives, those of one session with the same number."""
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    rows = "ROWS BETWEEN UNBOUNDED PRECEDING AND"
    before = f"max({_END}) OVER ({by}ORDER BY {_START}, {_END} {rows} 1 PRECEDING)"
    begins = f"SELECT *, CASE WHEN {_START} <= {before} THEN 0 ELSE 1 END AS _begins FROM ({parts})"
    # Of parts with the same bounds that which begins a session is the first: those before it go to another.
    order = f"ORDER BY {_START}, {_END}, _begins DESC {rows} CURRENT ROW"
    return f"SELECT *, sum(_begins) OVER ({by}{order}) AS _session FROM ({begins})"
