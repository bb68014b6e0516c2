"""The tables of a case computed from its records alone, by Spark's batch engine and by DuckDB.

Neither reads what the engine wrote. Spark decodes the records with its own `from_json`; DuckDB is given the
values that they were made of. Which records are malformed the case says.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from fuzz import groups
from fuzz.make import Case
from fuzz.values import COLUMNS, DDL, ODD, SCHEMA, Row, json_of, time_of, typed
from fuzz.waiting import processed, waited
from fuzz.words import Table, chosen, followed, name, query, records, sources, topic

Place = tuple[str, int, int]  # topic, partition, offset
WAITING = {"process": processed, "waited": waited}  # what comes of rows when their time is over
_RAW = "topic STRING, part INT, off BIGINT, came TIMESTAMP, sent TIMESTAMP, tomb BOOLEAN, value BINARY"
SKEW = 300  # seconds after it was read from which on the time of a row is in the future


class Sent:
    """Records that were sent, by their places; a row of None is malformed, and a tombstone's is its key.

    Attributes:
        marks: of each, when it came and Kafka's time of it (UTC), and whether it is a tombstone.
    """

    def __init__(self) -> None:
        self.rows: dict[Place, Row | None] = {}
        self.marks: dict[Place, Row] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def add(self, topic: str, record: Mapping[str, Any], came: datetime, *, after: bool = False) -> None:
        """One more, as a case has it; `after` that who reads its topic reads no more of it."""
        part = record["part"]
        off = self._ends.get((topic, part), 0)
        self._ends[topic, part] = off + 1
        if after:
            return
        self.rows[topic, part, off] = record.get("row", record.get("tomb"))
        sent = time_of(record["sent"]) if "sent" in record else came
        self.marks[topic, part, off] = {"came": came, "sent": sent, "tomb": "tomb" in record}

    def count(self, topic: str) -> int:
        """How many a topic has."""
        return sum(end for (of, _), end in self._ends.items() if of == topic)

    @property
    def good(self) -> dict[Place, Row]:
        """Those that are rows."""
        return {place: row for place, row in self.rows.items() if row is not None}

    def bad(self, topic: str) -> list[Place]:
        """The places of those that are malformed; whoever takes no tombstones has them, too."""
        return [place for place, row in self.rows.items() if row is None and place[0] == topic]

    def tombs(self, topic: str) -> list[Place]:
        """The places of tombstones."""
        return [place for place, marks in self.marks.items() if marks["tomb"] and place[0] == topic]

    def places(self) -> list[tuple[Row, Row]]:
        """Each good row, and what is known of it beside: the columns that are no values."""
        names = ("topic", "part", "off")
        return [
            (row, {**dict(zip(names, place, strict=True)), **self.marks[place]})
            for place, row in self.good.items()
        ]

    @property
    def partitions(self) -> set[tuple[str, int]]:
        """All that have had a record."""
        return set(self._ends)


def in_duckdb(case: Case, sent: Sent) -> dict[str, pa.Table]:
    """{table → its rows}, groups as `groups.in_duckdb` has them; beside it `<table>_late` and `<table>_held`,
    the places of rows that come too late and of well-formed records in quarantine, and `<table>_reached`, how
    far each partition has come."""
    found: dict[str, pa.Table] = {}
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = [typed(row, place) for row, place in sent.places()]
        given = pa.Table.from_pylist(rows, SCHEMA)
        connection.register("given", given)
        connection.execute("CREATE TABLE input AS SELECT * FROM given")
        for table in case["tables"]:
            sql = _sql(case, table, "epoch_us")
            if table["kind"] == "groups":
                said = groups.in_duckdb(table)
                found[table["name"]] = connection.execute(said.groups).to_arrow_table()
                if said.late:
                    found[f"{table['name']}_late"] = connection.execute(said.late).to_arrow_table()
                columns = [c for c in found[table["name"]].column_names if not c.startswith("_")]
                sql = f"SELECT {', '.join(columns)} FROM ({said.groups})"
            if table["kind"] in WAITING:
                late = WAITING[table["kind"]](table, "epoch_us", late=True)
                found[f"{table['name']}_late"] = connection.execute(late).to_arrow_table()
                for at, source in enumerate(table["sources"]):
                    reached = f"SELECT topic, part, max(epoch_us(ts)) AS at FROM {name(source)} GROUP BY ALL"
                    found[f"{table['name']}_reached{at}"] = connection.execute(reached).to_arrow_table()
            if topic(table):
                held = connection.execute(_held(case, table)).to_arrow_table()
                found[f"{table['name']}_held"] = held
            connection.execute(f"CREATE TABLE {name(table['name'])} AS {sql}")
            if table["kind"] != "groups":
                found[table["name"]] = connection.execute(f"FROM {name(table['name'])}").to_arrow_table()
            elif table["final"]:
                reached = (
                    f"SELECT topic, part, max(epoch_us(ts)) AS at FROM {name(table['source'])} GROUP BY ALL"
                )
                found[f"{table['name']}_reached"] = connection.execute(reached).to_arrow_table()
    return found


def in_spark(case: Case, sent: Sent, spark: SparkSession) -> dict[str, pa.Table]:
    """{table → its rows}; those are left out of which a sum does not fit its type, and what reads them."""
    found: dict[str, pa.Table] = {}
    kinds = pa.schema(
        [
            *(field for field in SCHEMA if field.name not in COLUMNS),
            pa.field("value", pa.binary()),
        ]
    )
    lines = [{**place, "value": json_of(row)} for row, place in sent.places()]
    raw = (
        spark.createDataFrame(pa.Table.from_pylist(lines, kinds))
        if lines
        else spark.createDataFrame([], _RAW)
    )
    raw.selectExpr("*", f"from_json(CAST(value AS STRING), '{DDL}') AS v").createOrReplaceTempView(
        "raw_input"
    )
    odd = "CASE WHEN v.{0} IN ('NaN', 'Infinity', '-Infinity') THEN CAST(v.{0} AS {1}) ELSE v.{2} END AS {2}"
    columns = [odd.format(ODD, COLUMNS[c], c) if c in ("x", "f") else f"v.{c}" for c in COLUMNS]
    rows = spark.sql(f"SELECT {', '.join(columns)}, topic, part, off, came, sent, tomb FROM raw_input")
    rows.createOrReplaceTempView("input")
    lost = set[str]()
    for table in case["tables"]:
        if lost & set(sources(table)):
            lost.add(table["name"])
            continue
        sql = groups.in_spark(table).groups if table["kind"] == "groups" else _sql(case, table, "unix_micros")
        try:
            rows = spark.sql(sql)
            found[table["name"]] = arrow = rows.toArrow()
        except ArithmeticException:
            lost.add(table["name"])
            continue
        kept = (
            spark.createDataFrame(arrow, rows.schema)
            if len(arrow)
            else spark.createDataFrame([], rows.schema)
        )
        kept.createOrReplaceTempView(name(table["name"]))
    return found


def _sql(case: Case, table: Table, micros: str) -> str:
    """What a table that is no table of groups is made of; `micros` gives the microseconds of a time."""
    if table["kind"] in WAITING:
        return WAITING[table["kind"]](table, micros)
    if table["kind"] == "decoded":
        columns = ", ".join([*COLUMNS, "topic", "part", "off"])
        return f"SELECT {columns} FROM ({_judged(case, table)}) q WHERE _clean AND NOT _again"
    if table["kind"] == "rows":
        return chosen(table)
    if table["kind"] == "union":
        each = [f"SELECT * FROM {name(source)} WHERE {where or 'true'}" for source, where in table["of"]]
        return " UNION ALL ".join(each)
    if table["kind"] == "changes":
        return followed(table)
    return "" if table["kind"] == "groups" else query(table)


def _judged(case: Case, table: Table) -> str:
    """The rows that the function of a decoded table gives, and of each whether rules about one row let it
    into the table (`_clean`) or have it quarantined (`_held`), and whether one about rows of a key keeps it
    out (`_again`)."""
    taken = f"{records(table)} WHERE {table['where'] or 'true'}"
    of_rows = [rule for rule in table["rules"] if "keyed" not in rule]
    passes = {
        action: [f"coalesce({r['column']} >= {r['least']}, true)" for r in of_rows if r["action"] == action]
        for action in ("quarantine", "drop")
    }
    kept = " AND ".join([_told(case, table), *passes["quarantine"]])
    clean = " AND ".join([kept, *passes["drop"]])
    rows = f"SELECT *, {clean} AS _clean, NOT ({kept}) AS _held FROM {taken}"
    keyed = [rule for rule in table["rules"] if "keyed" in rule and rule["action"] != "warn"]
    return f"SELECT *, {_again(keyed[0]) if keyed else 'false'} AS _again FROM ({rows}) r"


def _again(rule: Mapping[str, Any]) -> str:
    """Whether a row fails a rule about rows of one key: by those before it that are clean, and not NULL."""
    column, seen = rule["column"], f"(_clean AND {rule['column']} IS NOT NULL)"
    before = "ORDER BY part, off ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    if rule["keyed"] == "unique":
        earlier = f"count(CASE WHEN {seen} THEN 1 END) OVER (PARTITION BY {column} {before})"
        return f"({seen} AND coalesce({earlier}, 0) > 0)"
    best, worse = ("max", "<") if rule["keyed"] == "grows" else ("min", ">")
    over = f"OVER (PARTITION BY topic, part, {rule['within']} {before})"
    furthest = f"{best}(CASE WHEN {seen} THEN {column} END) {over}"
    return f"({seen} AND coalesce({column} {worse}{'=' if rule['strictly'] else ''} {furthest}, false))"


def _told(case: Case, table: Table) -> str:
    """Which rows are not of the future, where somebody tells the time by them."""
    if not _is_timed(case, table["name"]):
        return "true"
    return f"coalesce(ts <= came + INTERVAL {SKEW} SECONDS, true)"


def _held(case: Case, table: Table) -> str:
    if table["kind"] == "changes":  # what is no change, as it lacks its key
        return f"SELECT topic, part, off FROM {records(table)} WHERE {table['key']} IS NULL"
    holds = any("keyed" in rule and rule["action"] == "quarantine" for rule in table["rules"])
    which = "_held OR _again" if holds else "_held"
    return f"SELECT topic, part, off FROM ({_judged(case, table)}) q WHERE {which}"


def _is_timed(case: Case, above: str) -> bool:
    """Whether a table of rows, or one below it, tells the time."""
    for table in case["tables"]:
        if above in sources(table):
            if table["kind"] in WAITING or (table["kind"] == "groups" and table["delay"] is not None):
                return True
            if table["kind"] in ("rows", "union") and _is_timed(case, table["name"]):
                return True
    return False


def topics(case: Case, of: str) -> set[str]:
    """The topics that a table's rows come from."""
    tables: dict[str, Any] = {table["name"]: table for table in case["tables"]}
    if of not in tables:
        return {of.split(".")[1]}
    return set[str]().union(*(topics(case, source) for source in sources(tables[of])))
