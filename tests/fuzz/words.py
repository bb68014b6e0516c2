"""The definitions of a case as a project has them: its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fuzz.values import COLUMNS, DDL

Table = Mapping[str, Any]
Output = Mapping[str, Any]

PAIR = "struct(n, s)"  # is compared field by field, and NULL is the least
_NAMES = ", ".join(COLUMNS)


def name(table: str) -> str:
    """What the oracles call a table."""
    return table.replace(".", "_")


def files(case: Mapping[str, Any]) -> dict[str, str]:
    """The project of a case."""
    topics = sorted({f"bronze.{topic(table)}" for table in case["tables"] if topic(table)})
    bronze = "\n".join(
        f"{each.split('.')[1]} = hw.topic('{each.split('.')[1]}', partitions={case['partitions']})"
        for each in topics
    )
    found = {
        "bronze/topics.py": f"import headwater as hw\n{bronze}\n",
        "conf/local.yaml": "kafka: embedded\nmaintain: {keep: 0s, checkpoint: 3}\n",
    }
    for table in case["tables"]:
        found |= _WRITTEN[table["kind"]](table)
    return found


def topic(table: Table) -> str:
    """The topic whose records a table decodes; "": it reads other tables."""
    source = table.get("source", "")
    return source.removeprefix("bronze.") if source.startswith("bronze.") else ""


def suite(table: Table) -> dict[str, str]:
    """The suite of a decoded table, if it has one."""
    if not table["rules"]:
        return {}
    said = {"name": table["name"], "expectations": list(map(_expectation, table["rules"]))}
    return {f"quality/{table['name']}.json": json.dumps(said)}


def _expectation(rule: Mapping[str, Any]) -> dict[str, Any]:
    keyed = {"unique": "unique", "grows": "increasing", "falls": "decreasing"}
    given, meta = {"column": rule["column"]}, {"action": rule["action"]}
    if "keyed" not in rule:
        given["min_value"] = rule["least"]
    elif rule["keyed"] != "unique":
        given["strictly"], meta["within"] = rule["strictly"], [rule["within"]]
    kind = keyed.get(rule.get("keyed", ""), "between")
    return {"type": f"expect_column_values_to_be_{kind}", "kwargs": given, "meta": meta}


def _decoded(table: Table) -> dict[str, str]:
    own = table["name"].split(".")[1]
    limits = "".join(f", {each}" for each in _limits(table))
    where = f'.where("{table["where"]}")' if table["where"] else ""
    text = f'''import headwater as hw
from pyspark.sql import functions as F

ODD = "CASE WHEN odd IN ('NaN', 'Infinity', '-Infinity') THEN CAST(odd AS {{0}}) ELSE {{1}} END"

@hw.table(source="{table["source"]}", decode=hw.json("{DDL}"){limits})
def {own}(raw):
    """Rows of a topic."""
    made = {{name: F.expr(ODD.format(kind, name)) for name, kind in (("x", "DOUBLE"), ("f", "FLOAT"))}}
    return raw.withColumns(made).drop("odd", "_rescued"){where}
'''
    return {f"{table['name'].replace('.', '/')}.py": text, **suite(table)}


def _rows(table: Table) -> dict[str, str]:
    where = f" WHERE {table['where']}" if table["where"] else ""
    names = ", ".join(_told("coalesce(much, n)") if table.get("looked") else COLUMNS)
    text = f"SELECT {names}, _source, ingested_at FROM STREAM {table['source']}{where}"
    found = _file(table, f"CREATE STREAMING TABLE {table['name']} {_properties(table)} AS {text}")
    return (
        {**found, "silver/looked.py": _LOOKUP.format(key=table["looked"])} if table.get("looked") else found
    )


_LOOKUP = '''import headwater as hw

def fetch(keys):
    """What is known of keys: of few texts, and of numbers from 0 on."""
    for key in keys:
        much = {{"a": 1, "b": -2}}.get(key["k"]) if "k" in key else 2 * key["j"] if key["j"] >= 0 else None
        if much is not None:
            yield {{**key, "much": much}}

looked = hw.lookup(
    lambda keys: list(fetch(keys)), keys="{key}", columns="much BIGINT", ttl="1 hour", cache_size=2
)
'''
_KNOWN = {
    "k": "CASE WHEN k = 'a' THEN 1 WHEN k = 'b' THEN -2 END",
    "j": "CASE WHEN j >= 0 THEN CAST(j AS BIGINT) * 2 END",
}


def _told(n: str) -> list[str]:
    return [f"{n} AS n" if column == "n" else column for column in COLUMNS]


def chosen(table: Table) -> str:
    """The query of a table of rows, with what a lookup says, that is the same in all languages."""
    names = _told(f"coalesce({_KNOWN[table['looked']]}, n)") if table.get("looked") else [*COLUMNS]
    where = f" WHERE {table['where']}" if table["where"] else ""
    return f"SELECT {', '.join([*names, 'topic', 'part', 'off'])} FROM {name(table['source'])}{where}"


def _union(table: Table) -> dict[str, str]:
    found = _file(table, f"CREATE STREAMING TABLE {table['name']} {_properties(table)}")
    for at, (source, where) in enumerate(table["of"]):
        flow = f"{table['name']}_{at}"
        text = f"SELECT {_NAMES}, _source, ingested_at FROM STREAM {source}"
        text = f"CREATE FLOW {flow} AS INSERT INTO {table['name']} BY NAME {text}"
        found[f"{flow.replace('.', '/')}.sql"] = text + (f" WHERE {where}" if where else "")
    return found


def _groups(table: Table) -> dict[str, str]:
    window, where = table["window"], f" WHERE {table['where']}" if table["where"] else ""
    marked = f" WATERMARK ts DELAY OF INTERVAL {table['delay']} SECONDS" if table["delay"] is not None else ""
    stream = "" if table["view"] else "STREAM "
    source, groups, own = f"{stream}{table['source']}{marked}", list(table["keys"]), "window"
    if window and window["kind"] == "cumulative":
        size, step = (f"INTERVAL {window[each]} SECONDS" for each in ("size", "slide"))
        source = f"(SELECT *, cumulative_windows(ts, {size}, {step}) AS windows FROM {source}{where})"
        source, where = f"{source} LATERAL VIEW explode(windows) AS window", ""
        groups.append("window")
    elif window and window["kind"] == "session":
        groups.append(f"session_window(ts, '{window['size']} seconds')")
        own = "session_window"
    elif window:
        groups.append(f"window(ts, '{window['size']} seconds', '{window['slide']} seconds')")
    columns = [*heads(table, own), *(f"{plain(out)} AS {out['name']}" for out in table["outputs"])]
    text = f"SELECT {', '.join(columns)} FROM {source}{where}"
    text += f" GROUP BY {', '.join(groups)}" if groups else ""
    what = "MATERIALIZED VIEW" if table["view"] else "STREAMING TABLE"
    return _file(table, f"CREATE {what} {table['name']} {_properties(table)} AS {text}")


def _query(table: Table) -> dict[str, str]:
    streams = table["kind"] in ("changed", "met")
    what, stream = ("STREAMING TABLE", "STREAM ") if streams else ("MATERIALIZED VIEW", "")
    text = query(table, lambda source: stream + source)
    return _file(table, f"CREATE {what} {table['name']} {_properties(table)} AS {text}")


def _changes(table: Table) -> dict[str, str]:
    deletes = f" APPLY AS DELETE WHEN {table['deletes']}" if table["deletes"] else ""
    of = "SNAPSHOT" if table["snapshots"] else "STREAM"
    once, of = ("ONCE ", "") if table.get("once") else ("", f"{of} ")
    text = f"FLOW AUTO CDC {once}FROM {of}{table['source']} KEYS ({table['key']}){deletes} "
    text += f"SEQUENCE BY {table['sequence']} COLUMNS {table['key']}, {table['value']}"
    text += " STORED AS SCD TYPE 2" if table["history"] else ""
    return _file(table, f"CREATE STREAMING TABLE {table['name']} {_properties(table)} {text}")


def _limits(table: Table) -> list[str]:
    return [f"max_rows_per_batch={table['rows']}"] if table["rows"] else []


def _process(table: Table) -> dict[str, str]:
    own, key = table["name"].split(".")[1], table["key"]
    named = {source.split(".")[1]: source for source in table["sources"]}
    said = {"delay": f"{table['delay']} seconds"}
    said |= {"ttl": f"{table['ttl']} seconds"} if table["ttl"] else {}
    said |= {"idle_timeout": table["idle"]} if table.get("idle") else {}
    more = ", ".join([*(f'{key}="{value}"' for key, value in said.items()), *_limits(table)])
    text = f'''import headwater as hw

COLUMNS = "came TIMESTAMP, number BIGINT, which STRING, last STRING, part INT, off BIGINT"

@hw.process(source={json.dumps(named)}, keys=["{key}"], event_time="ts", {more},
            state="number BIGINT, last STRING, at TIMESTAMP", columns="{key} {COLUMNS[key]}, " + COLUMNS)
def {own}(row, key, source):
    """Rows of a key, numbered, each with which stream the one before was of."""
    before = key.state or {{"number": 0, "last": None}}
    number, place = before["number"] + 1, row["_source"]
    key.state = {{"number": number, "last": source, "at": key.now}}
    yield {{**key.key, "came": key.now, "number": number, "which": source, "last": before["last"],
           "part": place["partition"], "off": place["offset"]}}
'''
    return {f"{table['name'].replace('.', '/')}.py": text}


def _waited(table: Table) -> dict[str, str]:
    left, right = (
        f"STREAM {source} {alias} WATERMARK ts DELAY OF INTERVAL {table['delay']} SECONDS"
        for source, alias in zip(table["sources"], "ab", strict=True)
    )
    join = "LEFT ANTI" if table["join"] == "ANTI" else table["join"]
    text = f"SELECT {', '.join(met(table))} FROM {left} {join} JOIN {right} ON {near(table)}"
    return _file(table, f"CREATE STREAMING TABLE {table['name']} {_properties(table)} AS {text}")


def met(table: Table) -> list[str]:
    """The columns of a table of rows that wait for partners."""
    of = {"LEFT": "a.{0}", "ANTI": "a.{0}", "RIGHT": "b.{0}", "FULL": "coalesce(a.{0}, b.{0})"}[table["join"]]
    own = [
        *(f"{of.format(key)} AS {key}" for key in table["keys"]),
        f"a.{table['left']} AS l",
        "a.ts AS first",
    ]
    return own if table["join"] == "ANTI" else [*own, f"b.{table['right']} AS r", "b.ts AS second"]


def near(table: Table) -> str:
    """Which rows of two streams, `a` and `b`, are partners."""
    least, most = table["apart"]
    parts = [f"a.{key} = b.{key}" for key in table["keys"]] + [f"b.ts <= a.ts + INTERVAL {most} SECONDS"]
    parts += [] if least is None else [f"b.ts >= a.ts - INTERVAL {least} SECONDS"]
    return " AND ".join(parts)


def followed(table: Table) -> str:
    """What follows from changes, in a query that is the same in all languages."""
    key, value = table["key"], table["value"]
    deleted = f"coalesce({table['deletes'] or ('tomb' if topic(table) else 'false')}, false)"
    source = records(table) if topic(table) else name(table["source"])
    rows = (
        f"SELECT {key}, {value}, {table['sequence']} AS seq, {deleted} AS gone FROM {source} "
        f"WHERE {key} IS NOT NULL AND {table['sequence']} IS NOT NULL"
    )
    if table["snapshots"]:
        rows = f"{rows} UNION ALL {_lacking(table, rows)}"
    of = f"{key}, seq" if table["history"] else key
    last = (
        f"row_number() OVER (PARTITION BY {of} ORDER BY seq DESC, gone DESC, {value} DESC NULLS LAST) AS nth"
    )
    rows = f"SELECT * FROM (SELECT *, {last} FROM ({rows}) a) b WHERE nth = 1"
    if not table["history"]:
        return f"SELECT {key}, {value} FROM ({rows}) c WHERE NOT gone"
    over = f"OVER (PARTITION BY {key} ORDER BY seq)"
    before = f"lag({value}) {over} AS was, lag(gone) {over} AS went"
    begins = f"gone OR coalesce(went, true) OR {value} IS DISTINCT FROM was"
    rows = f"SELECT * FROM (SELECT *, {before} FROM ({rows}) c) d WHERE {begins}"
    ended = f"lead(seq) {over} AS ended"
    rows = f"SELECT *, {ended} FROM ({rows}) e"
    return f"SELECT {key}, {value}, seq AS __START_AT, ended AS __END_AT FROM ({rows}) f WHERE NOT gone"


def records(table: Table) -> str:
    """The well-formed records of the topic that a table decodes, which of those without a value takes such
    whose key is one of its own."""
    tomb = f"(NOT tomb OR {table['tombstones']} IS NOT NULL)" if table.get("tombstones") else "NOT tomb"
    return f"(SELECT * FROM input WHERE topic = '{topic(table)}' AND {tomb}) r"


def _lacking(table: Table, rows: str) -> str:
    """The deletes that deliveries say by what they lack, of rows that are delivered whole."""
    key, value = table["key"], table["value"]
    every = f"SELECT DISTINCT {table['sequence']} AS seq FROM {name(table['source'])}"
    times = f"SELECT seq, lead(seq) OVER (ORDER BY seq) AS following FROM ({every}) t WHERE seq IS NOT NULL"
    nothing = f"CASE WHEN 1 = 0 THEN l.{value} END"
    there = f"SELECT 1 FROM ({rows}) s WHERE s.{key} = l.{key} AND s.seq = n.following"
    return (
        f"SELECT DISTINCT l.{key}, {nothing}, n.following, true FROM ({rows}) l JOIN ({times}) n "
        f"ON l.seq = n.seq WHERE n.following IS NOT NULL AND NOT EXISTS ({there})"
    )


def query(table: Table, said: Callable[[str], str] = name) -> str:
    """The query of a table that is the same in all languages; `said` gives its sources' names."""
    where = f" WHERE {table['where']}" if table.get("where") else ""
    if table["kind"] == "changed":
        return f"SELECT {', '.join(table['columns'])} FROM {said(table['source'])}{where}"
    if table["kind"] == "distinct":
        return f"SELECT DISTINCT {', '.join(table['columns'])} FROM {said(table['source'])}{where}"
    if table["kind"] == "ranked":
        columns = ", ".join(table["columns"])
        by = ", ".join(f"{column} NULLS LAST" for column in table["columns"])
        ranks = f"row_number() OVER (ORDER BY {by}) AS place"
        rows = f"SELECT DISTINCT {columns} FROM {said(table['source'])}{where}"
        return f"SELECT {columns}, {ranks} FROM ({rows}) q"
    if table["kind"] == "having":
        column = table["columns"][0]
        counts = f"count(*) AS many, count(DISTINCT {table['columns'][-1]}) AS kinds"
        rows = f"{said(table['source'])}{where} GROUP BY {column} HAVING count(*) > 1"
        return f"SELECT {column}, {counts} FROM {rows}"
    if table["kind"] == "extremes":
        column, other = table["columns"][0], table["columns"][-1]
        ends = f"min({other}) AS least, max({other}) AS most, 2 * count({other}) + count(*) AS more"
        rows = f"{said(table['source'])}{where} GROUP BY {column} HAVING count(*) > 1"
        return f"SELECT {column}, {ends} FROM {rows}"
    if table["kind"] == "best":
        column, other = table["columns"][0], table["columns"][-1]
        by = list(dict.fromkeys((column, other)))
        groups = f"SELECT {', '.join(by)}, count(*) AS many FROM {said(table['source'])}{where} GROUP BY ALL"
        over = f"PARTITION BY {column if len(by) > 1 else 'many'} ORDER BY many DESC, {other} NULLS LAST"
        ranked = f"SELECT *, row_number() OVER ({over}) AS place FROM ({groups}) q"
        return f"SELECT {', '.join(by)}, many, place FROM ({ranked}) r WHERE place <= 2"
    if table["kind"] in ("counted", "nested"):
        column, other = table["columns"][0], table["columns"][-1]
        counts = f"count(*) AS many, count(DISTINCT {other}) AS kinds, count({other}) AS seen"
        groups = f"SELECT {column}, {counts} FROM {said(table['source'])}{where} GROUP BY {column}"
        if table["kind"] == "counted":
            return groups
        return f"SELECT kinds, count(*) AS parts, sum(many) AS total FROM ({groups}) q GROUP BY kinds"
    left, right = (said(source) for source in table["sources"])
    if table["kind"] == "met":
        on = " AND ".join(f"a.{key} = b.{key}" for key in table["keys"])
        low, high = (
            f"a.ts {sign} INTERVAL {by} SECONDS" for sign, by in zip("-+", table["apart"], strict=True)
        )
        near = {"both": f"b.ts BETWEEN {low} AND {high}", "after": f"b.ts >= {low}", "none": "true"}
        columns = [f"a.{table['left']} AS l", f"b.{table['right']} AS r", "a.ts AS first", "b.ts AS second"]
        joined = f"{left} a JOIN {right} b ON {on} AND {near[table['near']]}"
        return f"SELECT {', '.join(columns)} FROM {joined}{where}"
    full = table["join"] == "FULL"  # there NULL is a key as any, else there were two rows of it
    on = " AND ".join(f"a.{key} {'IS NOT DISTINCT FROM' if full else '='} b.{key}" for key in table["keys"])
    keys = [f"coalesce(a.{key}, b.{key}) AS {key}" if full else f"a.{key}" for key in table["keys"]]
    own = [*keys, *(f"a.{c} AS l_{c}" for c in table["left"])]
    columns = ", ".join([*own, *(f"b.{c} AS r_{c}" for c in table["right"])])
    joined = f"SELECT {columns} FROM {left} a {table['join']} JOIN {right} b"
    return f"{joined} ON {on}" if on else joined


def sources(table: Table) -> list[str]:
    """What a table reads."""
    if table["kind"] == "union":
        return [source for source, _ in table["of"]]
    several = table["kind"] in ("joined", "met", "process", "waited")
    return list(table["sources"]) if several else [table["source"]]


def _file(table: Table, text: str) -> dict[str, str]:
    return {f"{table['name'].replace('.', '/')}.sql": text}


def _properties(table: Table) -> str:
    bounded = table.get("rows") and not table.get("view")  # a view takes all that has changed at once
    said = {"headwater.max_rows_per_batch": table["rows"]} if bounded else {}
    if table.get("tombstones"):
        said |= {"headwater.decode": "json", "headwater.schema": DDL, "headwater.timestamp": "sent"}
        said["headwater.tombstones"] = table["tombstones"]
    if table.get("final"):
        said["headwater.emit"] = "final"
    if table.get("idle"):
        said["headwater.idle_timeout"] = table["idle"]
    if table.get("looked"):
        said["headwater.lookup"] = "looked"
    if table.get("lateness") is not None:
        said["headwater.allowed_lateness"] = f"{table['lateness']} seconds"
    return (
        "TBLPROPERTIES (" + ", ".join(f"'{key}' = '{value}'" for key, value in said.items()) + ")"
        if said
        else ""
    )


_WRITTEN = {
    "process": _process,
    "waited": _waited,
    "decoded": _decoded,
    "rows": _rows,
    "union": _union,
    "groups": _groups,
    "changes": _changes,
}
_WRITTEN |= dict.fromkeys(
    (
        *("changed", "distinct", "ranked", "having", "joined", "counted", "nested", "met"),
        *("best", "extremes"),
    ),
    _query,
)


def heads(table: Table, window: str) -> list[str]:
    """The keys of a table of groups, as they are selected."""
    ends = {"since": f"{window}.start", "upto": f"{window}.end", "whole": window}
    shown = (table["window"] or {}).get("shown", ())
    return [*(f"{ends[each]} AS {each}" for each in shown), *table["keys"]]


def plain(out: Output) -> str:
    """An aggregate as a definition has it."""
    arguments = [
        out["of"],
        *([out["by"]] if "by" in out else []),
        *([str(out["most"])] if "most" in out else []),
    ]
    return f"{out['fn']}({', '.join(arguments)}){filtered(out['filter'])}"


def filtered(*conditions: str | None) -> str:
    """The FILTER of an aggregate."""
    said = [f"({condition})" for condition in conditions if condition]
    return f" FILTER (WHERE {' AND '.join(said)})" if said else ""
