"""Partial results of open windows: put together, and parted into those that close and the others.

Windows of time that have the same keys and bounds become one. Sessions of the same keys that touch become one
(as Spark's `session_window` has it: the next begins no later than the last ends), so one row may take the
place of several.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.common import scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.planner.aggregate import BOUNDS, Aggregate, Output
from headwater.storage.names import PARTIAL
from headwater.storage.target import GONE

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


def combine(aggregate: Aggregate, held: pa.Table, fresh: pa.Table, closing: int) -> tuple[pa.Table, pa.Table]:
    """What becomes of the open windows with a new partial result.

    Args:
        aggregate: what is aggregated.
        held: the open windows: the aggregate's columns, `_partial` where it has one, `_start` and `_end`.
        fresh: the partial result of new rows, likewise. An aggregate without a window has no bounds there,
            and nothing of it closes.
        closing: what is over by this time closes (microseconds since the epoch, UTC).

    Returns:
        The changes of `held`, for `Target.change`; and the rows of the windows that close.
    """
    keys = [quoted(name) for name in state_keys(aggregate)]
    plain = keys[: -len(BOUNDS)] if aggregate.window else keys
    within = plain if aggregate.window == "session" else keys
    told = [f"p.{key}" for key in ([*plain, "_session"] if aggregate.window == "session" else keys)]
    groups = f"GROUP BY {', '.join(told)}" if told else "HAVING count(*) > 0"  # without keys there is one
    names = ", ".join(map(quoted, held.schema.names))
    over = _due(aggregate, closing)
    with scratch.connection() as connection:
        connection.register("held", held)
        connection.register("fresh", fresh)
        kinds = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE held)").fetchall())
        values = ", ".join(
            f"CAST({value} AS {kinds[name]}) AS {quoted(name)}" for name, value in _values(aggregate, kinds)
        )
        connection.execute(
            f"CREATE TEMP TABLE merged AS WITH parts AS ("
            f"SELECT {names} FROM held SEMI JOIN fresh ON {same('held', 'fresh', within)} "
            f"UNION ALL SELECT {names} FROM fresh) "
            f"SELECT {values} FROM ({_numbered(aggregate, plain)}) p {groups}"
        )
        connection.execute(
            f"CREATE TEMP VIEW now AS SELECT {names} FROM merged UNION ALL "
            f"SELECT {names} FROM held ANTI JOIN fresh ON {same('held', 'fresh', within)}"
        )
        outputs = ", ".join(quoted(output.name) for output in aggregate.outputs)
        closed = connection.execute(f"SELECT {outputs} FROM now WHERE {over}").to_arrow_table()
        changes = connection.execute(
            f"SELECT {names}, false AS {GONE} FROM merged WHERE NOT ({over}) UNION ALL "
            f"SELECT {names}, true FROM held ANTI JOIN (SELECT * FROM now WHERE NOT ({over})) still "
            f"ON {same('held', 'still', keys)}"
        ).to_arrow_table()
    kept = pa.schema([held.schema.field(output.name) for output in aggregate.outputs])
    return changes.cast(held.schema.append(pa.field(GONE, pa.bool_()))), closed.cast(kept)


def _values(aggregate: Aggregate, kinds: dict[str, str]) -> list[tuple[str, str]]:
    """(column, its value over a group), in order."""
    found = [(output.name, _value(output)) for output in aggregate.outputs]
    if PARTIAL in kinds:
        averages = [part for output in aggregate.outputs for part in _averages(output)]
        parts = averages + [part for output in aggregate.outputs for part in _orders(output)]
        found.append((PARTIAL, f"struct_pack({', '.join(parts)})"))
    bounds = [(_START, f"min({_START})"), (_END, f"max({_END})")]
    return found + (bounds if aggregate.window else [])


def _value(output: Output) -> str:
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
    if output.k:
        return f"list_transform({_best(output)}, lambda pair: pair.value)"
    return f"{'sum' if output.kind == 'count' else output.kind}({name})"


def _averages(output: Output) -> list[str]:
    """The fields of `_partial` that an average has."""
    if output.kind != "avg":
        return []
    return [f"{quoted(f'{output.name}_{each}')} := sum({_part(output, each)})" for each in ("sum", "count")]


def _orders(output: Output) -> list[str]:
    """The field of `_partial` by which a value is chosen."""
    if output.k:
        return [f"{quoted(f'{output.name}_by')} := {_best(output)}"]
    if output.kind not in ("max_by", "min_by"):
        return []
    return [f"{quoted(f'{output.name}_by')} := {output.kind[:3]}({_part(output, 'by')})"]


def _best(output: Output) -> str:
    """The k pairs of value and order that come first, of all that the partial results have."""
    order = "'DESC', 'NULLS LAST'" if output.kind == "max_by_k" else "'ASC', 'NULLS FIRST'"
    return f"list_sort(flatten(list({_part(output, 'by')})), {order})[1:{output.k}]"


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
