"""What a table of groups has to be, in two languages: from the documentation, not by the engine's code.

Spark's own batch query says it almost as the definition does; DuckDB's words are other ones throughout: it
has neither windows nor sessions, times are counted in microseconds, a sum of whole numbers has 128 bits and
neither wraps nor fails, and which of equal rows `max_by` takes is said by an order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fuzz.words import PAIR, Output, Table, filtered, heads, name, plain

# What the partition of a row had reached before its record.
_BEFORE = "PARTITION BY topic, part ORDER BY off RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


@dataclass(frozen=True)
class Groups:
    """Queries over all rows of a table's source.

    Attributes:
        groups: the table's rows, if all windows are over; from DuckDB, some columns more: `_end` of the
            window (microseconds), and for each sum or average `_m_` and its name, the sum of what it adds,
            all positive.
        late: the places (topic, part, off) of rows that come too late, once for each window; None: none do.
    """

    groups: str
    late: str | None = None


def bounded(table: Table) -> bool:
    """Whether rows may come too late for it."""
    return bool(table["final"] or table["lateness"] is not None)


def in_spark(table: Table) -> Groups:
    """As Spark has it."""
    window, keys = table["window"] or {}, list(table["keys"])
    reached = f"max(unix_micros(ts)) OVER ({_BEFORE}) AS _reached"
    rows = f"SELECT * FROM (SELECT *, {reached} FROM {name(table['source'])}){_where(table)}"
    outputs = [f"{_in_spark(out)} AS {out['name']}" for out in table["outputs"]]
    kind, own = window.get("kind"), "window"
    if kind == "session":
        late, own = "_reached > unix_micros(ts)", "session_window"
        keys.append(f"session_window(ts, '{window['size']} seconds')")
    elif kind:
        late = "_reached >= unix_micros(window.end)"
        keys.append("window")
        spans = f"'{window['size']} seconds', '{window['slide']} seconds'"
        rows = (
            f"SELECT *, window(ts, {spans}) AS window FROM ({rows})"
            if kind != "cumulative"
            else _grown(rows, window)
        )
    if kind and bounded(table):
        rows = f"SELECT * FROM ({rows}) WHERE NOT coalesce({late} + {_bound(table)}, false)"
    return Groups(f"SELECT {', '.join([*heads(table, own), *outputs])} FROM ({rows}){_by(table, keys)}")


def _grown(rows: str, window: Mapping[str, Any]) -> str:
    """Rows with their cumulative windows."""
    size, step = window["size"] * 1_000_000, window["slide"] * 1_000_000
    start = f"unix_micros(ts) - pmod(unix_micros(ts), {size})"
    one = f"named_struct('start', timestamp_micros({start}), 'end', timestamp_micros({start} + i * {step}))"
    each = f"explode(transform(sequence(1, {size // step}), i -> {one}))"
    return f"SELECT * FROM (SELECT *, {each} AS window FROM ({rows})) WHERE window.end > ts"


def _in_spark(out: Output) -> str:
    if "by" not in out:
        return plain(out)
    most = f", {out['most']}" if "most" in out else ""
    order = f"struct({out['by']} AS a, {out['of']} AS b)"  # of equal ones, the greatest or the least
    which = filtered(f"{out['by']} IS NOT NULL", out["filter"])
    return f"{out['fn']}({out['of']}, {order}{most}){which}"


def in_duckdb(table: Table) -> Groups:
    """As DuckDB has it."""
    window, keys = table["window"] or {}, list(table["keys"])
    rows = f"SELECT *, epoch_us(ts) AS us FROM {name(table['source'])}"
    rows = f"SELECT * FROM (SELECT *, max(us) OVER ({_BEFORE}) AS _reached FROM ({rows})){_where(table)}"
    outputs = [column for out in table["outputs"] for column in _in_duckdb(out)]
    if not window:
        return Groups(f"SELECT {', '.join([*keys, *outputs])} FROM ({rows}){_by(table, keys)}")
    session, late = window["kind"] == "session", ""
    rows = f"SELECT * FROM ({rows}) WHERE us IS NOT NULL" if session else _windows(rows, window)
    if bounded(table):
        last = "_reached > us" if session else "_reached >= _end"
        late = f"SELECT topic, part, off FROM ({rows}) WHERE coalesce({last} + {_bound(table)}, false)"
        rows = f"SELECT * FROM ({rows}) WHERE NOT coalesce({last} + {_bound(table)}, false)"
    rows = _sessions(rows, keys, window["size"] * 1_000_000) if session else rows
    said = {
        "since": "_start AS since",
        "upto": "_end AS upto",
        "whole": '{"start": _start, "end": _end} AS whole',
    }
    columns = [*(said[each] for each in window["shown"]), *keys, *outputs, "_end"]
    return Groups(
        f"SELECT {', '.join(columns)} FROM ({rows}){_by(table, [*keys, '_start', '_end'])}", late or None
    )


def _windows(rows: str, window: Mapping[str, Any]) -> str:
    """Rows with the windows of time that they are in, once for each."""
    size, slide = window["size"] * 1_000_000, window["slide"] * 1_000_000
    cumulative = window["kind"] == "cumulative"
    unit = size if cumulative else slide
    floor = f"(us - ((us % {unit}) + {unit}) % {unit})"
    start = floor if cumulative else f"{floor} - _i * {slide}"
    end = f"{floor} + (_i + 1) * {slide}" if cumulative else f"{start} + {size}"
    rows = f"SELECT *, unnest(range({-(-size // slide)})) AS _i FROM ({rows}) WHERE us IS NOT NULL"
    return f"SELECT * FROM (SELECT *, {start} AS _start, {end} AS _end FROM ({rows})) WHERE _end > us"


def _sessions(rows: str, keys: list[str], gap: int) -> str:
    """Rows with the session that they are in: one begins where nothing came for longer than a gap."""
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    order = f"{by}ORDER BY us, topic, part, off ROWS"
    before = f"max(us) OVER ({order} BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    rows = f"SELECT *, coalesce(us > {before} + {gap}, false) AS _begins FROM ({rows})"
    rows = f"SELECT *, sum(_begins::INT) OVER ({order} UNBOUNDED PRECEDING) AS _session FROM ({rows})"
    of = f"OVER (PARTITION BY {', '.join([*keys, '_session'])})"
    return f"SELECT *, min(us) {of} AS _start, max(us) {of} + {gap} AS _end FROM ({rows})"


def _in_duckdb(out: Output) -> list[str]:
    of, called, which = out["of"], out["name"], filtered(out["filter"])
    if "by" in out:
        best = "DESC NULLS LAST" if out["fn"] == "max_by" else "ASC NULLS FIRST"
        which = filtered(f"{out['by']} IS NOT NULL", out["filter"])
        kept = f"list({of} ORDER BY {out['by']} {best}, {of} {best}){which}"
        first = f"1:{out['most']}" if "most" in out else "1"
        return [f"({kept})[{first}] AS {called}"]
    if of == PAIR:
        best = "ASC NULLS FIRST" if out["fn"] == "min" else "DESC NULLS LAST"
        return [f"(list({{'n': n, 's': s}} ORDER BY n {best}, s {best}){which})[1] AS {called}"]
    if out["fn"] not in ("sum", "avg"):
        return [f"{out['fn']}({of}){which} AS {called}"]
    value = f"CAST({of} AS DOUBLE)"
    size = f"sum(CASE WHEN isfinite({value}) THEN abs({value}) END){which}"
    text = f"avg({value})" if out["fn"] == "avg" else f"sum({of})"
    return [f"{text}{which} AS {called}", f"coalesce({size}, 0) AS _m_{called}"]


def _where(table: Table) -> str:
    return f" WHERE {table['where']}" if table["where"] else ""


def _by(table: Table, keys: list[str]) -> str:
    """Its groups; without keys there is one, which a table has once a first row has come."""
    if keys:
        return f" GROUP BY {', '.join(keys)}"
    return "" if table["view"] else f" HAVING (SELECT count(*) FROM {name(table['source'])}) > 0"


def _bound(table: Table) -> int:
    return int((table["delay"] + (table["lateness"] or 0)) * 1_000_000)
