"""What comes of rows when their time is over, in queries that are the same in all languages."""

from __future__ import annotations

from fuzz.words import Table, met, name, near

_AT_ONCE = -(2**62) - 1  # before any time


def processed(table: Table, micros: str, *, late: bool = False) -> str:
    """What a process gives, or the places of the rows that come too late for it.

    Args:
        table: the process's.
        micros: the function that gives the microseconds of a time.
        late: whether those are asked for.
    """
    key, delay = table["key"], table["delay"] * 1_000_000
    before = "PARTITION BY topic, part ORDER BY off RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    rows = " UNION ALL ".join(
        f"SELECT {key}, ts, {micros}(ts) AS us, {at} AS turn, '{source.split('.')[1]}' AS which, topic, "
        f"part, off, max({micros}(ts)) OVER ({before}) AS _reached FROM {name(source)}"
        for at, source in enumerate(table["sources"])
    )
    is_late = f"(us IS NULL OR coalesce(_reached > us + {delay}, false))"
    if late:
        return f"SELECT topic, part, off FROM ({rows}) r WHERE {is_late}"
    order = f"PARTITION BY {key} ORDER BY us, turn, topic, part, off"
    rows = f"SELECT * FROM ({rows}) r WHERE NOT {is_late}"
    of = "0"
    if table["ttl"]:  # what is known of a key is forgotten where nothing came for so long
        rests = f"us - lag(us) OVER ({order}) > {table['ttl'] * 1_000_000}"
        rows = f"SELECT *, CASE WHEN {rests} THEN 1 ELSE 0 END AS begins FROM ({rows}) q"
        upto = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        rows = f"SELECT *, sum(begins) OVER ({order} {upto}) AS life FROM ({rows}) p"
        of = "life"
    within = order.replace(f"PARTITION BY {key}", f"PARTITION BY {key}, {of}")
    numbered = (
        f"row_number() OVER ({within}) AS number, which, lag(which) OVER ({within}) AS last, part, off, us"
    )
    return f"SELECT {key}, ts AS came, {numbered} FROM ({rows}) n"


def waited(table: Table, micros: str, *, late: bool = False) -> str:
    """What an outer join of streams gives that is final, and from when on (`us`, microseconds, without the
    delay); or the places of the rows that come too late for it.

    Args:
        table: its definition.
        micros: the function that gives the microseconds of a time.
        late: whether those are asked for.
    """
    before = "PARTITION BY topic, part ORDER BY off RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    is_late = f"(us IS NULL OR coalesce(_reached > us + {table['delay'] * 1_000_000}, false))"
    told = [
        f"SELECT *, max(us) OVER ({before}) AS _reached "
        f"FROM (SELECT *, {micros}(ts) AS us FROM {name(source)}) r"
        for source in table["sources"]
    ]
    if late:
        return " UNION ALL ".join(f"SELECT topic, part, off FROM ({rows}) q WHERE {is_late}" for rows in told)
    a, b = (f"(SELECT * FROM ({rows}) q WHERE NOT {is_late})" for rows in told)
    least, most = (by and by * 1_000_000 for by in table["apart"])
    found = [f"{', '.join(met(table))}, {_AT_ONCE} AS us FROM {a} a JOIN {b} b ON {near(table)}"]
    found = [] if table["join"] == "ANTI" else found
    lone = f"WHERE NOT EXISTS (SELECT 1 FROM {{}} WHERE {near(table)})"
    if table["join"] != "RIGHT":
        columns = [*(f"a.{key}" for key in table["keys"]), f"a.{table['left']} AS l", "a.ts AS first"]
        columns += [] if table["join"] == "ANTI" else ["NULL AS r", "NULL AS second"]
        found.append(f"{', '.join(columns)}, a.us + {most} AS us FROM {a} a {lone.format(f'{b} b')}")
    if table["join"] in ("RIGHT", "FULL"):
        columns = [*(f"b.{key}" for key in table["keys"]), "NULL AS l", "NULL AS first"]
        columns += [f"b.{table['right']} AS r", "b.ts AS second"]
        found.append(f"{', '.join(columns)}, b.us + {least} AS us FROM {b} b {lone.format(f'{a} a')}")
    return " UNION ALL ".join(f"SELECT {each}" for each in found)
