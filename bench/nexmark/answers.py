"""What Nexmark's queries give over all events, by DuckDB alone, from the values as they were sent."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pyarrow as pa

from headwater.common.scratch import OFF_TIES
from headwater.connectors.produce import Record

_COLUMNS = {
    "person": "id BIGINT, name VARCHAR, city VARCHAR, state VARCHAR, date_time BIGINT",
    "auction": "id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT, "
    "date_time BIGINT, expires BIGINT, seller BIGINT, category BIGINT",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time BIGINT, "
    "extra VARCHAR",
}
INTERVAL = "interval_join"  # an interval join, which Nexmark has none of
_WON = """SELECT a.*, b.bidder, b.price, b.date_time AS bid_date_time FROM auction a JOIN bid b
    ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"""
_ENDED = f"SELECT id, seller, category, date_time, max(price) AS final FROM ({_WON}) GROUP BY ALL"
_TEN = "time_bucket(INTERVAL 10 SECONDS, {}, TIMESTAMP '1970-01-01')"
_COUNTED = ", ".join(
    f"{what} FILTER (WHERE {where}) AS {name}{of}"
    for what, of in (
        ("count(*)", ""),
        ("count(DISTINCT bidder)", "_bidders"),
        ("count(DISTINCT auction)", "_auctions"),
    )
    for name, where in (
        ("all", "true"),
        ("low", "price < 10000"),
        ("middle", "price BETWEEN 10000 AND 999999"),
        ("high", "price > 999999"),
    )
)
_BIDS = """count(*) AS bids, count(*) FILTER (WHERE price < 10000) AS low,
    count(*) FILTER (WHERE price BETWEEN 10000 AND 999999) AS middle,
    count(*) FILTER (WHERE price > 999999) AS high"""

ANSWERS = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(price * 0.908 AS DECIMAL(23, 3)), date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": "SELECT name, city, state, a.id FROM auction a, person p "
    "WHERE seller = p.id AND category = 10 AND state IN ('OR', 'ID', 'CA')",
    "q4": f"SELECT category, avg(final) FROM ({_ENDED}) GROUP BY category",
    "q5": """WITH counts AS (
        SELECT starts, auction, count(*) AS bids FROM (
            SELECT auction, unnest([time_bucket(INTERVAL 2 SECONDS, date_time) - to_seconds(2 * i)
                                    for i in range(5)]) AS starts FROM bid) GROUP BY ALL)
        SELECT starts, starts + INTERVAL 10 SECONDS, auction, bids FROM counts c
        WHERE bids = (SELECT max(bids) FROM counts o WHERE o.starts = c.starts)""",
    "q6": f"""SELECT seller, id, avg(final) OVER (PARTITION BY seller ORDER BY date_time, id
        ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) FROM ({_ENDED})""",
    "q7": f"""SELECT auction, bidder, price, date_time, extra FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY {_TEN.format("date_time")})""",
    "q8": f"""SELECT DISTINCT p.id, p.name, {_TEN.format("p.date_time")} FROM person p, auction a
        WHERE p.id = a.seller AND {_TEN.format("p.date_time")} = {_TEN.format("a.date_time")}""",
    "q9": f"""SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category,
        bidder, price, bid_date_time FROM ({_WON})
        QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_date_time) = 1""",
    "q11": """SELECT bidder, min(date_time), max(date_time) + INTERVAL 10 SECONDS, count(*) FROM (
        SELECT bidder, date_time, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time) AS session FROM (
            SELECT bidder, date_time, CAST(date_time - INTERVAL 10 SECONDS > lag(date_time) OVER (
                PARTITION BY bidder ORDER BY date_time) AS INT) AS begins FROM bid))
        GROUP BY bidder, coalesce(session, 0)""",
    "q15": f"SELECT CAST(date_time AS DATE), {_COUNTED} FROM bid GROUP BY 1",
    "q16": f"""SELECT channel, CAST(date_time AS DATE), max(strftime(date_time, '%H:%M')), {_COUNTED}
        FROM bid GROUP BY 1, 2""",
    "q17": f"""SELECT auction, CAST(date_time AS DATE), {_BIDS}, min(price), max(price), avg(price),
        CAST(sum(price) AS BIGINT) FROM bid GROUP BY 1, 2""",
    "q18": """SELECT auction, bidder, price, channel, url, date_time, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1""",
    "q19": """SELECT auction, bidder, price, channel, url, date_time, extra,
        row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bid
        QUALIFY place <= 10""",
    "q20": """SELECT auction, bidder, price, channel, url, b.date_time, item_name, initial_bid, reserve,
        a.date_time, expires, seller FROM bid b, auction a WHERE auction = a.id AND category = 10""",
    INTERVAL: """SELECT auction, bidder, price, b.date_time, item_name, a.date_time FROM bid b, auction a
        WHERE auction = a.id AND b.date_time BETWEEN a.date_time AND a.date_time + INTERVAL 10 SECONDS""",
}
UNSEEN = ("partition", "offset")  # columns of tables that answers do not have: where a bid stands in Kafka


def events(records: Iterable[Record]) -> duckdb.DuckDBPyConnection:
    """A database with the events of some records: `person`, `auction` and `bid`; times in UTC."""
    connection = duckdb.connect()
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / name for name in _COLUMNS}
        opened = {f"nexmark-{name}": file.open("wb") for name, file in files.items()}
        for record in records:
            opened[record.topic].write(record.value or b"null")
            opened[record.topic].write(b"\n")
        for name, file in files.items():
            opened[f"nexmark-{name}"].close()
            columns = json.dumps(dict(each.split() for each in _COLUMNS[name].split(", ")))
            connection.execute(
                f"CREATE TABLE {name} AS SELECT * REPLACE (make_timestamp(date_time * 1000) AS date_time) "
                f"FROM read_json('{file}', format = 'newline_delimited', columns = {columns})"
            )
    connection.execute(
        "CREATE OR REPLACE TABLE auction AS "
        "SELECT * REPLACE (make_timestamp(expires * 1000) AS expires) FROM auction"
    )
    return connection


def difference(database: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> list[str]:
    """Some rows that a table holds and the answer does not, and the other way round; none: they are equal.

    Args:
        database: the events.
        name: the query.
        rows: what the table holds, times in UTC.
    """
    mine = rows.drop_columns([column for column in UNSEEN if column in rows.column_names])
    mine = mine.cast(pa.schema(pa.field(each.name, _naive(each.type)) for each in mine.schema))
    database.register("held", mine)
    listed = ", ".join(f"c{at}" for at in range(mine.num_columns))
    database.execute(f"CREATE OR REPLACE TEMP VIEW theirs({listed}) AS {ANSWERS[name]}")
    database.execute(f"CREATE OR REPLACE TEMP VIEW ours({listed}) AS FROM held")
    kinds = database.execute("SELECT * FROM theirs LIMIT 0").to_arrow_table().schema
    told = ", ".join(
        f"round(c{at} * {OFF_TIES}, 6)" if pa.types.is_floating(kind.type) else f"c{at}"
        for at, kind in enumerate(kinds)
    )
    return [
        f"{side}: {row}"
        for side, one, other in (("too much", "ours", "theirs"), ("missing", "theirs", "ours"))
        for row in database.execute(
            f"SELECT {told} FROM {one} EXCEPT ALL SELECT {told} FROM {other} LIMIT 3"
        ).fetchall()
    ]


def _naive(kind: pa.DataType) -> pa.DataType:
    """A time in UTC without its zone."""
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
