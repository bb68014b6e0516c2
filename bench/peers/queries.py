"""Nexmark's queries in Flink SQL, after the published specification and with the columns of our definitions.

Those whose rows never change are appended to Parquet files, the others are kept in Paimon by their keys. q6
is missing: Flink has no OVER window over rows that change.
"""

from __future__ import annotations

from bench.nexmark.answers import INTERVAL
from bench.peers.flink import Insert

_WATERMARK = "ts AS TO_TIMESTAMP_LTZ(date_time, 3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND"
_SOURCES = {
    "person": "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, "
    "date_time BIGINT, extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
    "date_time BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra STRING, "
    "ends AS TO_TIMESTAMP_LTZ(expires, 3)",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, "
    "extra STRING",
}
_TIME = "TIMESTAMP_LTZ(3)"
_WINDOW = "starts TIMESTAMP(3), ends TIMESTAMP(3)"
_TEN = "INTERVAL '10' SECOND"
_DAY = "CAST(ts AS DATE)"
_OPEN = "b.auction = a.id AND b.ts BETWEEN a.ts AND a.ends"
_FINAL = f"""SELECT a.id, a.category, MAX(b.price) AS best FROM auction a JOIN bid b ON {_OPEN}
    GROUP BY a.id, a.category"""
_BID = f"auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time {_TIME}"
_RANGES = {
    "": "",
    "low": "price < 10000",
    "middle": "price >= 10000 AND price < 1000000",
    "high": "price >= 1000000",
}


def _counts(*kinds: str) -> tuple[str, str]:
    """The columns that count bids, bidders or auctions, in all and in three ranges of the price; and what
    they are."""
    columns, values = [], []
    for kind in kinds:
        for name, where in _RANGES.items():
            counted = "*" if kind == "bids" else f"DISTINCT {kind.removesuffix('s')}"
            columns.append(f"{name or 'all'}_{kind} BIGINT")
            values.append(f"COUNT({counted})" + (f" FILTER (WHERE {where})" if where else ""))
    return ", ".join(columns), ", ".join(values)


_COUNTED, _COUNTS = _counts("bids", "bidders", "auctions")
_BIDS_COUNTED, _BIDS_COUNTS = _counts("bids")
_HOT = f"""SELECT window_start, window_end, auction, COUNT(*) AS bids
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, {_TEN}))
    GROUP BY window_start, window_end, auction"""
_SEEN = """SELECT {0}, window_start, window_end FROM TABLE(TUMBLE(TABLE {1}, DESCRIPTOR(ts), {2}))
    GROUP BY {0}, window_start, window_end"""

QUERIES = {
    each.name: each
    for each in (
        Insert(
            "q0",
            f"auction BIGINT, bidder BIGINT, price BIGINT, date_time {_TIME}, extra STRING",
            "SELECT auction, bidder, price, ts, extra FROM bid",
        ),
        Insert(
            "q1",
            f"auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), date_time {_TIME}, extra STRING",
            "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)), ts, extra FROM bid",
        ),
        Insert(
            "q2",
            "auction BIGINT, price BIGINT",
            "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
        ),
        Insert(
            "q3",
            "name STRING, city STRING, state STRING, id BIGINT",
            """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
            WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        ),
        Insert(
            "q4",
            "category BIGINT, `final` DOUBLE",
            f"SELECT category, AVG(CAST(best AS DOUBLE)) FROM ({_FINAL}) GROUP BY category",
            key="category",
        ),
        Insert(
            "q5",
            f"{_WINDOW}, auction BIGINT, bids BIGINT",
            f"""SELECT c.window_start, c.window_end, c.auction, c.bids FROM ({_HOT}) c JOIN (
                SELECT window_start, window_end, MAX(bids) AS bids FROM ({_HOT})
                GROUP BY window_start, window_end) m
            ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.bids = m.bids""",
        ),
        Insert(
            "q7",
            f"auction BIGINT, bidder BIGINT, price BIGINT, date_time {_TIME}, extra STRING",
            f"""SELECT b.auction, b.bidder, b.price, b.ts, b.extra FROM bid b JOIN (
                SELECT MAX(price) AS price, window_time AS ts
                FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), {_TEN}))
                GROUP BY window_start, window_end, window_time) m
            ON b.price = m.price AND b.ts BETWEEN m.ts - INTERVAL '9.999' SECOND AND m.ts""",
        ),
        Insert(
            "q8",
            "id BIGINT, name STRING, starts TIMESTAMP(3)",
            f"""SELECT p.id, p.name, p.window_start FROM ({_SEEN.format("id, name", "person", _TEN)}) p
            JOIN ({_SEEN.format("seller", "auction", _TEN)}) a
            ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
        ),
        Insert(
            "q9",
            "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
            f"date_time {_TIME}, expires {_TIME}, seller BIGINT, category BIGINT, bidder BIGINT, "
            f"price BIGINT, bid_date_time {_TIME}",
            f"""SELECT id, item_name, description, initial_bid, reserve, ts, ends, seller, category, bidder,
                price, bid_ts
            FROM (SELECT a.*, b.bidder, b.price, b.ts AS bid_ts,
                    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts) AS place
                FROM auction a JOIN bid b ON {_OPEN})
            WHERE place = 1""",
            key="id",
        ),
        Insert(
            "q11",
            f"bidder BIGINT, {_WINDOW}, bids BIGINT",
            f"""SELECT bidder, window_start, window_end, COUNT(*)
            FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), {_TEN}))
            GROUP BY bidder, window_start, window_end""",
        ),
        Insert(
            "q15",
            f"`day` DATE, {_COUNTED}",
            f"SELECT {_DAY}, {_COUNTS} FROM bid GROUP BY {_DAY}",
            key="`day`",
        ),
        Insert(
            "q16",
            f"channel STRING, `day` DATE, `minute` STRING, {_COUNTED}",
            f"""SELECT channel, {_DAY}, MAX(DATE_FORMAT(ts, 'HH:mm')), {_COUNTS}
            FROM bid GROUP BY channel, {_DAY}""",
            key="channel, `day`",
        ),
        Insert(
            "q17",
            f"auction BIGINT, `day` DATE, {_BIDS_COUNTED}, least BIGINT, most BIGINT, average DOUBLE, "
            "total BIGINT",
            f"""SELECT auction, {_DAY}, {_BIDS_COUNTS}, MIN(price), MAX(price), AVG(CAST(price AS DOUBLE)),
                SUM(price)
            FROM bid GROUP BY auction, {_DAY}""",
            key="auction, `day`",
        ),
        Insert(
            "q18",
            f"{_BID}, extra STRING",
            """SELECT auction, bidder, price, channel, url, ts, extra
            FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS place
                FROM bid)
            WHERE place = 1""",
            key="bidder, auction",
        ),
        Insert(
            "q19",
            f"{_BID}, extra STRING, place BIGINT",
            """SELECT auction, bidder, price, channel, url, ts, extra, place
            FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, ts) AS place
                FROM bid)
            WHERE place <= 10""",
            key="auction, place",
        ),
        Insert(
            "q20",
            f"{_BID}, item_name STRING, initial_bid BIGINT, reserve BIGINT, auction_date_time {_TIME}, "
            f"expires {_TIME}, seller BIGINT",
            """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts, a.item_name, a.initial_bid,
                a.reserve, a.ts, a.ends, a.seller
            FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
        ),
        Insert(
            INTERVAL,
            f"auction BIGINT, bidder BIGINT, price BIGINT, date_time {_TIME}, item_name STRING, "
            f"auction_date_time {_TIME}",
            f"""SELECT b.auction, b.bidder, b.price, b.ts, a.item_name, CAST(a.ts AS {_TIME})
            FROM bid b JOIN auction a ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.ts + {_TEN}""",
        ),
    )
}


def sources(servers: str) -> list[str]:
    """The statements that declare the three topics of a broker."""
    return [
        f"CREATE TABLE {kind} ({columns}, {_WATERMARK}) WITH ('connector' = 'kafka', "
        f"'topic' = 'nexmark-{kind}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json', "
        "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')"
        for kind, columns in _SOURCES.items()
    ]
