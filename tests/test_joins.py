"""Joins of streams: each pair of rows once, whatever order they come in and however batches are cut."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from test_final import seeded

from headwater.errors.codes import Code
from headwater.flows import computed, joined, ranged
from headwater.operations import erase, maintain, savepoints
from headwater.operations.maintain.compact import compact
from headwater.operations.rebuild.reconcile import reconcile
from headwater.planner import explained
from headwater.planner.changes import plan
from headwater.storage import log
from headwater.testing import Project, apply

STREAMS = ("orders", "parcels", "payments")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SHOPS = "shop,city\n0,Bern\n1,Oslo\n"
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\n"
    + "".join(f'{name} = hw.topic("{name}")\n' for name in STREAMS),
    **{
        f"silver/{name}.sql": f"CREATE STREAMING TABLE {name} TBLPROPERTIES ('headwater.decode' = 'json', "
        "'headwater.schema' = 'nr INT, id INT, shop INT, at TIMESTAMP') AS "
        f"SELECT nr, id, shop, at, _source, ingested_at FROM STREAM bronze.{name}"
        for name in STREAMS
    },
    "conf/reference/shops.csv": SHOPS,
    "conf/reference/shops.ddl": "shop INT, city STRING",
}
TWO = """CREATE STREAMING TABLE sent AS
SELECT o.nr, p.nr AS parcel, o.id FROM STREAM silver.orders o JOIN STREAM silver.parcels p
ON o.id = p.id AND p.at BETWEEN o.at - INTERVAL 5 SECONDS AND o.at + INTERVAL 20 SECONDS
"""
THREE = """CREATE STREAMING TABLE done AS
WITH paid AS (SELECT *, at + INTERVAL 10 SECONDS AS until FROM STREAM silver.payments WHERE shop < 3)
SELECT o.nr, p.nr AS parcel, y.nr AS payment, s.city FROM STREAM silver.orders o, STREAM silver.parcels AS p
JOIN paid y ON y.until >= p.at LEFT JOIN reference.shops s ON s.shop = y.shop
WHERE o.id = p.id AND o.shop = y.shop AND o.nr >= 0
"""
FOUR = """CREATE STREAMING TABLE near AS
WITH o AS (SELECT nr, shop, window(at, '20 seconds', '10 seconds') AS w FROM STREAM silver.orders),
p AS (SELECT nr, shop, window(at, '20 seconds', '10 seconds') AS w FROM STREAM silver.parcels),
y AS (SELECT nr, shop, at, date_trunc('MINUTE', at) AS minute FROM STREAM silver.payments)
SELECT o.nr, p.nr AS parcel, y.nr AS payment, unix_seconds(o.w.start) AS start
FROM o JOIN p ON o.w = p.w AND o.shop = p.shop
JOIN y ON y.minute = date_trunc('MINUTE', p.w.end) AND y.shop = o.shop
AND y.at - p.w.start BETWEEN INTERVAL -10 SECONDS AND INTERVAL 15 SECONDS
"""
Row = dict[str, Any]


def drawn(draw: random.Random, count: int, first: int) -> list[Row]:
    """Rows in any order of time, some without an id or a time."""
    return [
        {
            "nr": first + at,
            "id": draw.choice([None, *range(4)]),
            "shop": draw.randrange(4),
            "at": draw.choice([None] + [draw.randrange(60)] * 9),
        }
        for at in range(count)
    ]


def record(row: Row) -> Row:
    """A row as it is sent."""
    at = row["at"]
    return {**row, "at": None if at is None else (BEGIN + timedelta(seconds=at)).isoformat()}


def two(rows: Mapping[str, list[Row]]) -> Counter[Any]:
    """What plain Python says the first query gives."""
    return Counter(
        (o["nr"], p["nr"], o["id"])
        for o, p in product(rows["orders"], rows["parcels"])
        if o["id"] is not None and o["id"] == p["id"]
        if None not in (o["at"], p["at"]) and o["at"] - 5 <= p["at"] <= o["at"] + 20
    )


def three(rows: Mapping[str, list[Row]]) -> Counter[Any]:
    """What plain Python says the second query gives."""
    city = {0: "Bern", 1: "Oslo"}
    return Counter(
        (o["nr"], p["nr"], y["nr"], city.get(y["shop"]))
        for o, p, y in product(*(rows[name] for name in STREAMS))
        if o["id"] is not None and o["id"] == p["id"] and o["shop"] == y["shop"] < 3
        if None not in (p["at"], y["at"]) and y["at"] + 10 >= p["at"]
    )


def four(rows: Mapping[str, list[Row]]) -> Counter[Any]:
    """What plain Python says the third query gives."""
    windows = {
        name: [
            (row["nr"], row["shop"], row["at"] // 10 * 10 - back)
            for row in rows[name]
            if row["at"] is not None
            for back in (0, 10)
        ]
        for name in ("orders", "parcels")
    }
    return Counter(
        (o, p, y["nr"], int(BEGIN.timestamp()) + start)
        for (o, shop, start), (p, other, beside) in product(windows["orders"], windows["parcels"])
        if (shop, start) == (other, beside)
        for y in rows["payments"]
        if y["at"] is not None and y["shop"] == shop
        if y["at"] // 60 == (start + 20) // 60 and -10 <= y["at"] - start <= 15
    )


@pytest.mark.parametrize("few", [True, False], ids=["in memory", "by Spark"])
def test_each_combination_of_rows_is_met_once(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    draw = seeded(random.randrange(2**32))
    monkeypatch.setattr(sys.modules[compact.__module__], "FEWEST", 2)
    if not few:
        monkeypatch.setattr(joined, "are_few", lambda files, rows: False)
    monkeypatch.setattr(joined, "_LOOKED_THROUGH", draw.choice([0, joined._LOOKED_THROUGH]))
    files = {**FILES, "gold/sent.sql": TWO, "gold/done.sql": THREE, "gold/near.sql": FOUR}
    project = Project(files, tmp_path, spark=interpreted)
    rows: dict[str, list[Row]] = {name: [] for name in STREAMS}
    for turn in range(4):
        for name in draw.sample(STREAMS, draw.randint(1, 3)):
            new = drawn(draw, draw.randint(1, 8), len(rows[name]))
            rows[name] += new
            project.send(name, [record(row) for row in new])
            if draw.random() < 0.5:
                project.step(f"silver.{name}")
        if turn == 2:  # rows that are read and rows that are not come into one file
            project.step(*(f"silver.{name}" for name in STREAMS))
            maintain.maintain(project.definitions)
        project.step()
        if draw.random() < 0.3:
            project.restart()
        assert Counter(project.rows("gold.sent")) == two(rows)
        assert Counter(project.rows("gold.done")) == three(rows)
        assert Counter(project.rows("gold.near")) == four(rows)


def test_keys_are_looked_for_where_the_index_names_them(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without partners is not read, though its bounds hold their keys: before and after a compaction,
    and a start."""
    monkeypatch.setattr(joined, "_LOOKED_THROUGH", 0)
    monkeypatch.setattr(sys.modules[compact.__module__], "FEWEST", 2)
    join = (
        "SELECT o.nr, p.nr AS parcel FROM STREAM silver.orders o JOIN STREAM silver.parcels p ON o.id = p.id"
    )
    project = Project(
        {**FILES, "gold/t.sql": f"CREATE STREAMING TABLE t AS {join}"}, tmp_path, spark=interpreted
    )

    def sent(stream: str, *ids: int | None) -> None:
        project.send(stream, [record({"nr": nr, "id": id, "shop": 0, "at": 0}) for nr, id in enumerate(ids)])
        project.step()

    def order(*ids: int | None) -> tuple[int, int]:
        """How many pairs an order gives, and in how many files of parcels they are looked for."""
        sent("orders", *ids)
        last = project.batches("gold.t")[-1]
        return last.rows_out or 0, (last.files_read or 0) - 1

    for ids in ([0, 10, None], [1, 11], [2, 12, 12]):
        sent("parcels", *ids)
    assert order(11) == (1, 1)
    assert order(12, 0) == (3, 2)
    assert order(3, None) == (0, 0)
    project.restart()
    assert order(1, 2) == (2, 2)
    maintain.maintain(project.definitions)
    assert order(1, 2) == (2, 2)  # what was there when it had read last
    assert order(1, 2) == (2, 1)
    sent("parcels", 3)
    assert order(3, 4) == (1, 1)
    assert len(project.rows("gold.t")) == 1 + 3 + 3 * 2 + 1 + 1


def explained_of(project: Project, name: str) -> tuple[str, ...]:
    context = project.context
    (found,) = explained.explain(context.spark, context.project, [name])
    return found.joins


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("o.id = p.id", "by id, in the files that an index of keys names"),
        (
            "o.id = p.nr AND o.shop + 1 = p.shop AND p.at < o.at",
            "by nr = id, at from at … to +0 s, in the files that an index of keys names",
        ),
        ("o.id = p.id AND p.at = o.at", "by at, id, at from at +0 s to +0 s"),
        ("o.id < p.id", "all of them"),
        ("o.at < p.at", "by at from at +0 s to …"),
        ("p.at >= o.at - INTERVAL '1' MINUTE AND NOT p.id = o.id", "by at from at -60 s to …"),
        ("o.at = p.at + INTERVAL 2 HOURS", "by at from at -7200 s to -7200 s"),
        (
            "p.at + INTERVAL '1' DAY BETWEEN o.at AND o.at + INTERVAL '2 01' DAY TO HOUR",
            "by at from at -86400 s to +90000 s",
        ),
        ("p.at < o.at + INTERVAL 1 MONTH AND o.id <=> p.id", "all of them"),
        ("o.at = p.at OR o.id = p.id", "all of them"),
        ("o.at - p.at < INTERVAL 10 MINUTES", "by at from at -600 s to …"),
        ("p.at - o.at BETWEEN -INTERVAL 1 MINUTE AND INTERVAL '2' HOUR", "by at from at -60 s to +7200 s"),
        ("date_trunc('hour', p.at) = date_trunc('HOUR', o.at)", "by at from at -3600 s to +3600 s"),
        ("p.at >= date_trunc('MON', o.at)", "by at from at -2678400 s to …"),
        ("date_trunc(CAST(o.id AS STRING), p.at) = o.at", "all of them"),
        ("CAST(p.at AS DATE) = to_date(o.at)", "by at from at -86400 s to +86400 s"),
        ("p.at >= CAST(o.at AS DATE) AND p.at < o.at", "by at from at -86400 s to +0 s"),
        ("CAST(p.at AS BIGINT) = CAST(o.at AS BIGINT)", "all of them"),
        ("CAST(p.at - o.at AS INTERVAL DAY) = INTERVAL '0' DAY", "all of them"),  # cut to whole days
        (
            "CAST(p.at - o.at AS INTERVAL DAY TO SECOND) BETWEEN INTERVAL 0 SECOND AND INTERVAL 9 SECONDS",
            "by at from at +0 s to +9 s",
        ),
    ],
)
def test_the_plan_says_where_partners_are(
    interpreted: SparkSession, tmp_path: Path, condition: str, said: str
) -> None:
    query = f"SELECT o.nr FROM STREAM silver.orders o JOIN STREAM silver.parcels p ON {condition}"
    project = Project(
        {**FILES, "gold/t.sql": f"CREATE STREAMING TABLE t AS {query}"}, tmp_path, spark=interpreted
    )
    assert (
        explained_of(project, "gold.t")[0] == f"new rows of silver.orders read rows of silver.parcels: {said}"
    )


@pytest.mark.parametrize(
    ("orders", "parcels", "condition", "said"),
    [
        ("'5 minutes'", "'5 minutes'", "o.w = p.w", "by at from at -300 s to +300 s"),
        ("'5 minutes'", "'5 minutes'", "o.w.end = p.w.end", "by at from at -300 s to +300 s"),
        ("'5 minutes'", "'5 minutes'", "p.at < o.w.end", "by at from at … to +300 s"),
        ("'6 minutes', '2 minutes'", "'2 minutes'", "p.at < o.w.end AND o.w.start <= p.at",
         "by at from at -360 s to +360 s"),
        ("'1 hour', '1 hour', '15 minutes'", "'1 hour'", "p.w.start > o.w.start",
         "by at from at -3600 s to …"),
        ("'5 minutes'", "'5 minutes'", "o.w.start = p.w.end OR o.id = p.id", "all of them"),
    ],
)  # fmt: skip
def test_the_plan_says_it_of_windows(
    interpreted: SparkSession, tmp_path: Path, orders: str, parcels: str, condition: str, said: str
) -> None:
    query = f"""CREATE STREAMING TABLE t AS
WITH o AS (SELECT *, window(at, {orders}) AS w FROM STREAM silver.orders),
p AS (SELECT *, window(at, {parcels}) AS w FROM STREAM silver.parcels)
SELECT o.nr, p.nr AS parcel FROM o JOIN p ON {condition}"""
    project = Project({**FILES, "gold/t.sql": query}, tmp_path, spark=interpreted)
    assert (
        explained_of(project, "gold.t")[0] == f"new rows of silver.orders read rows of silver.parcels: {said}"
    )


def test_a_function_does_not_join_a_stream_with_itself(interpreted: SparkSession, tmp_path: Path) -> None:
    text = """import headwater as hw

@hw.table(source=["silver.orders", "silver.orders"])
def t(one, other):
    return one.join(other, "id").select("id")
"""
    with raises_code("MODULE_FAILED", match=r"gold/t\.py:3: .*silver\.orders is read twice"):
        assert Project({**FILES, "gold/t.py": text}, tmp_path, spark=interpreted).tables


PAIR = "FROM STREAM silver.orders o {} STREAM silver.parcels p"
NOT_APPENDED: list[tuple[str, Code, str]] = [
    (f"SELECT count(*) AS n {PAIR.format('JOIN')} ON o.id = p.id", "JOIN_NOT_APPENDED", "GROUP BY"),
    (f"SELECT DISTINCT o.nr {PAIR.format('JOIN')} ON o.id = p.id", "JOIN_NOT_APPENDED", "DISTINCT"),
    (
        "SELECT o.nr FROM STREAM silver.orders o WHERE id IN (SELECT id FROM STREAM silver.parcels)",
        "JOIN_NOT_APPENDED",
        "LeftSemi",
    ),
    (
        "SELECT o.nr FROM STREAM silver.orders o JOIN STREAM silver.orders p ON o.id = p.id "
        "JOIN STREAM silver.parcels q ON q.id = p.id",
        "JOIN_NOT_APPENDED",
        "silver.orders with itself",
    ),
    (
        "SELECT nr FROM (SELECT nr, id FROM STREAM silver.orders UNION ALL SELECT nr, id FROM STREAM "
        "silver.payments) o JOIN STREAM silver.parcels p USING (nr)",
        "JOIN_NOT_APPENDED",
        "UNION",
    ),
    (
        f"SELECT o.nr {PAIR.format('JOIN')} ON o.id = p.id RIGHT JOIN reference.shops s ON s.shop = o.shop",
        "JOIN_REPEATS_ROWS",
        "RightOuter",
    ),
    ("SELECT o.nr FROM STREAM silver.orders o JOIN STREAM gold.n USING (id)", "INPUT_ROWS_CHANGE", "gold.n"),
]


@pytest.mark.parametrize(("query", "code", "said"), NOT_APPENDED)
def test_what_would_take_rows_back_is_refused(
    interpreted: SparkSession, tmp_path: Path, query: str, code: Code, said: str
) -> None:
    files = {
        **FILES,
        "gold/n.sql": "CREATE STREAMING TABLE n AS SELECT id, count(*) AS n FROM STREAM silver.payments "
        "GROUP BY id",
        "gold/t.sql": f"CREATE STREAMING TABLE t AS {query}",
    }
    with raises_code(code, match=said):
        _ = Project(files, tmp_path, spark=interpreted).context


OUTER = {
    "gold/left.sql": f"""CREATE STREAMING TABLE l TBLPROPERTIES ('headwater.keys' = 'nr, parcel') AS
SELECT o.nr, o.at, p.nr AS parcel {PAIR.format("LEFT JOIN")}
WATERMARK at DELAY OF INTERVAL 1 MINUTE ON o.id = p.id AND p.at >= o.at""",
    "gold/full.sql": """CREATE STREAMING TABLE f TBLPROPERTIES ('headwater.keys' = 'shop, nr, parcel') AS
WITH o AS (SELECT * FROM STREAM silver.orders WHERE shop > 0), p AS (SELECT * FROM STREAM silver.parcels)
SELECT coalesce(o.shop, p.shop) AS shop, o.nr, p.nr AS parcel FROM o FULL JOIN p ON o.shop = p.shop""",
    "gold/without.sql": """CREATE TEMPORARY VIEW sent AS SELECT * FROM STREAM silver.parcels;
CREATE STREAMING TABLE without AS SELECT o.nr, o.id FROM STREAM silver.orders o ANTI JOIN STREAM sent p
ON o.id = p.id""",
    "gold/open.sql": "CREATE STREAMING TABLE open AS SELECT * FROM STREAM gold.l WHERE parcel IS NULL",
}


def test_a_row_without_a_partner_is_corrected(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = seeded(random.randrange(2**32))
    monkeypatch.setattr(computed, "WHOLE", -1)
    project = Project({**FILES, **OUTER}, tmp_path, spark=interpreted)
    rows: dict[str, list[Row]] = {name: [] for name in STREAMS}
    for _ in range(4):
        for name in draw.sample(("orders", "parcels"), draw.randint(1, 2)):
            new = drawn(draw, draw.randint(1, 6), len(rows[name]))
            rows[name] += new
            project.send(name, [record(row) for row in new])
        project.step()
        orders, parcels = rows["orders"], rows["parcels"]
        left = Counter(
            (o["nr"], p["nr"])
            for o, p in product(orders, parcels)
            if o["id"] is not None and o["id"] == p["id"]
            if None not in (o["at"], p["at"]) and p["at"] >= o["at"]
        )
        alone = Counter((o["nr"], None) for o in orders if o["nr"] not in {nr for nr, _ in left})
        assert Counter(project.rows("gold.l", "nr, parcel")) == left + alone
        assert Counter(project.rows("gold.open", "nr, parcel")) == alone
        some = [o for o in orders if o["shop"] > 0]
        full = [(o["shop"], o["nr"], p["nr"]) for o, p in product(some, parcels) if o["shop"] == p["shop"]]
        full += [(o["shop"], o["nr"], None) for o in some if o["shop"] not in {p["shop"] for p in parcels}]
        full += [(p["shop"], None, p["nr"]) for p in parcels if p["shop"] not in {o["shop"] for o in some}]
        assert Counter(project.rows("gold.f")) == Counter(full)
        sent = {p["id"] for p in parcels} - {None}
        without = Counter((o["nr"], o["id"]) for o in orders if o["id"] not in sent)
        assert Counter(project.rows("gold.without")) == without
    assert [one.same for one in reconcile(project.definitions, ["gold.l", "gold.without"])] == [True] * 2


FLOW = "CREATE STREAMING TABLE t; CREATE FLOW x AS INSERT INTO t BY NAME "
NOT_CORRECTED: list[tuple[str, Code, str]] = [
    (f"{FLOW} SELECT o.nr {PAIR.format('LEFT JOIN')} ON o.id = p.id", "JOIN_NOT_APPENDED", "LeftOuter join"),
    (
        f"CREATE STREAMING TABLE t TBLPROPERTIES ('headwater.emit' = 'final') AS SELECT o.nr "
        f"{PAIR.format('LEFT JOIN')} ON o.id = p.id",
        "WATERMARK_MISSING",
        "by which column silver.orders tells the time",
    ),
    (
        f"CREATE STREAMING TABLE t AS SELECT o.nr {PAIR.format('LEFT JOIN')} ON o.id = p.id "
        "JOIN silver.payments y ON y.id = o.id",
        "STREAM_MISSING",
        "reads silver.payments as a table",
    ),
    (
        f"CREATE MATERIALIZED VIEW t AS SELECT o.nr {PAIR.format('LEFT JOIN')} ON o.id = p.id",
        "VIEW_READS_STREAM",
        "leave out STREAM",
    ),
]


@pytest.mark.parametrize(("text", "code", "said"), NOT_CORRECTED)
def test_not_every_outer_join_is_one(
    interpreted: SparkSession, tmp_path: Path, text: str, code: Code, said: str
) -> None:
    with raises_code(code, match=said):
        _ = Project({**FILES, "gold/t.sql": text}, tmp_path, spark=interpreted).context


@pytest.mark.parametrize("emit", ["'headwater.emit' = 'final'", "'headwater.allowed_lateness' = '1 minute'"])
def test_rows_of_a_join_tell_no_lateness(interpreted: SparkSession, tmp_path: Path, emit: str) -> None:
    join = f"SELECT o.*, p.nr AS parcel {PAIR.format('JOIN')} ON o.id = p.id"
    files = {
        **FILES,
        "silver/sent.sql": f"CREATE STREAMING TABLE sent AS {join}",
        "silver/most.sql": "CREATE STREAMING TABLE most AS SELECT * FROM STREAM silver.sent WHERE nr > 0",
        "gold/n.sql": f"CREATE STREAMING TABLE n TBLPROPERTIES ({emit}) AS "
        "SELECT window(at, '1 minute').end AS at, count(*) AS n FROM STREAM silver.most "
        "WATERMARK at DELAY OF INTERVAL 1 SECOND GROUP BY window(at, '1 minute')",
    }
    with raises_code("TIME_OF_JOIN", match=r"gold\.n tells which rows of silver\.most are late"):
        _ = Project(files, tmp_path, spark=interpreted).context


def test_nor_do_those_that_a_flow_joins(interpreted: SparkSession, tmp_path: Path) -> None:
    """Whichever of the flows into a table it is."""
    columns = "{0}.nr, {0}.at, {0}._source, {0}.ingested_at"
    fed = f"""CREATE STREAMING TABLE fed;
CREATE FLOW paid AS INSERT INTO fed BY NAME SELECT {columns.format("y")} FROM STREAM silver.payments y;
CREATE FLOW sent AS INSERT INTO fed BY NAME SELECT {columns.format("o")} {PAIR.format("JOIN")}
ON o.id = p.id"""
    final = """CREATE STREAMING TABLE n TBLPROPERTIES ('headwater.emit' = 'final') AS
SELECT window(at, '1 minute').end AS at, count(*) AS n FROM STREAM silver.fed
WATERMARK at DELAY OF INTERVAL 1 SECOND GROUP BY window(at, '1 minute')"""
    project = Project({**FILES, "silver/fed.sql": fed}, tmp_path, spark=interpreted)
    assert explained_of(project, "silver.fed")[0].endswith(
        "silver.parcels: by id, in the files that an index of keys names"
    )
    with raises_code("TIME_OF_JOIN", match=r"gold\.n tells which rows of silver\.fed are late"):
        _ = project.write({"gold/n.sql": final}).context


MORE = {
    "gold/two.py": '''import headwater as hw
@hw.table(source=["silver.orders", "silver.parcels"])
def two(orders, parcels):
    """What was sent."""
    return orders.alias("o").join(parcels.alias("p"), "id").select("id", "o.nr", "p.at")
''',
    "gold/fed.sql": """CREATE STREAMING TABLE fed (CONSTRAINT few EXPECT (nr < 4) ON VIOLATION DROP ROW);
CREATE FLOW sent AS INSERT INTO fed BY NAME SELECT o.nr, o.id
FROM STREAM silver.orders o JOIN STREAM silver.parcels p ON o.id = p.id;
CREATE FLOW paid AS INSERT INTO fed BY NAME SELECT nr, id FROM STREAM silver.payments""",
    "gold/counted.sql": """CREATE STREAMING TABLE counted AS
SELECT window(at, '10 seconds').start AS at, count(*) AS n FROM STREAM gold.two
WATERMARK at DELAY OF INTERVAL 1 SECOND GROUP BY window(at, '10 seconds')""",
    "silver/sdp.py": """from pyspark import pipelines as dp
from pyspark.sql import SparkSession
spark = SparkSession.active()
@dp.table
def both():
    orders, parcels = spark.readStream.table("silver.orders"), spark.readStream.table("silver.parcels")
    pairs = orders.withWatermark("at", "1 minute").join(parcels.select("id", "shop"), ["id", "shop"])
    return pairs.select("nr")
""",
    "gold/views.sql": "CREATE MATERIALIZED VIEW per_id AS SELECT id, count(*) AS n FROM gold.two GROUP BY id",
}


def test_what_joins_give_is_a_stream(interpreted: SparkSession, tmp_path: Path) -> None:
    """A function joins, and a flow beside another; aggregates and views read it."""
    project = Project({**FILES, **MORE}, tmp_path, spark=interpreted)
    at = [record({"nr": nr, "id": nr % 3, "shop": 0, "at": nr}) for nr in range(9)]
    for part in (at[:4], at[4:]):
        for name in STREAMS:
            project.send(name, part)
        project.step()
    one = {"nr": 1, "id": 7, "shop": 0}
    given = {"silver.orders": [one], "silver.parcels": [one | {"nr": 2}, one | {"id": 8}]}
    assert apply(project, "gold.two", given).rows == [{"id": 7, "nr": 1, "at": None}]
    pairs = [(o, p) for o in range(9) for p in range(9) if o % 3 == p % 3]
    assert Counter(project.rows("silver.both")) == Counter((o,) for o, _ in pairs)
    fed = Counter([(o, o % 3) for o, _ in pairs if o < 4] + [(y, y % 3) for y in range(4)])
    assert Counter(project.rows("gold.fed")) == fed
    assert project.rows("gold.counted", "n") == [(27,)]
    assert sorted(project.rows("gold.per_id")) == [(0, 9), (1, 9), (2, 9)]
    assert sum(batch.dropped for batch in project.batches("gold.fed")) == len(pairs) - 12 + 5


def test_a_rebuild_is_the_same(interpreted: SparkSession, tmp_path: Path) -> None:
    few = {name: text for name, text in MORE.items() if name in ("gold/two.py", "gold/counted.sql")}
    project = Project({**FILES, **few}, tmp_path, spark=interpreted)
    for part in (range(4), range(4, 9)):
        for name in STREAMS[:2]:
            project.send(name, [record({"nr": nr, "id": nr % 3, "shop": 0, "at": nr}) for nr in part])
            project.step(f"silver.{name}", "gold.two")
    project.step("gold.counted")
    names = ["gold.two", "gold.counted"]
    assert [one.same for one in reconcile(project.definitions, names)] == [True] * 2
    project.rebuild("gold.two")
    project.restart().step()
    assert len(project.rows("gold.two")) == 27 and project.rows("gold.counted", "n") == [(27,)]
    place = project.lake.place("silver.orders")
    second = max(file.order for file in log.snapshot(place.path, log.head(place.path)))
    project.rebuild("gold.two", since=datetime.fromtimestamp(second / 1000, UTC).isoformat())
    project.restart().step()
    assert len(project.rows("gold.two")) == 27 - 6  # pairs of which one row came with the second part


def test_it_is_kept_like_other_tables(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance leaves what it has to read again; it comes back from a savepoint; records go out of it."""
    draw = seeded(random.randrange(2**32))
    monkeypatch.setattr(sys.modules[compact.__module__], "FEWEST", 2)
    conf = "kafka: embedded\nmaintain: {keep: 0s}\n"
    project = Project({**FILES, "gold/sent.sql": TWO, "conf/local.yaml": conf}, tmp_path, spark=interpreted)
    rows: dict[str, list[Row]] = {name: [] for name in STREAMS}

    def come(*stepped: str) -> None:
        for name in ("orders", "parcels"):
            new = drawn(draw, 8, len(rows[name]))
            rows[name] += new
            project.send(name, [record(row) for row in new])
        project.step(*stepped)

    for _ in range(4):
        come()
    come("silver.orders", "silver.parcels")  # what it has read, and has not, comes into one file
    maintain.maintain(project.definitions)
    project.restart().step()
    assert Counter(project.rows("gold.sent")) == two(rows)
    before = two(rows)
    savepoints.create(project.definitions, "before")
    come()
    after = two(rows)
    savepoints.restore(project.definitions, "before")
    assert Counter(project.rows("gold.sent")) == before
    project.restart().step()
    assert Counter(project.rows("gold.sent")) == after
    savepoints.drop(project.lake, "before")
    definitions = project.definitions
    erase.erase(definitions, erase.look(definitions, "silver.parcels", "id = 2"))
    project.restart().step()
    rows["parcels"] = [row for row in rows["parcels"] if row["id"] != 2]
    assert Counter(project.rows("gold.sent")) == two(rows)
    (compared,) = reconcile(project.definitions, ["gold.sent"])
    assert compared.same


def test_a_changed_join_goes_on(interpreted: SparkSession, tmp_path: Path) -> None:
    """With another condition or column, for rows from here on; with other streams it is to be rebuilt."""
    project = Project({**FILES, "gold/sent.sql": TWO}, tmp_path, spark=interpreted)

    def come(nr: int) -> None:
        for name in STREAMS:
            project.send(name, [record({"nr": nr, "id": 0, "shop": nr, "at": 0})])
        project.step()

    def effect() -> str:
        return [each.verdict.effect for each in plan(project.definitions, ["gold.sent"])][-1]

    come(1)
    project.change("gold/sent.sql", "o.id FROM", "o.id, p.shop FROM")
    assert effect() == "resumes"
    come(2)
    assert Counter(project.rows("gold.sent")) == Counter(
        [(1, 1, 0, None), (1, 2, 0, 2), (2, 1, 0, 1), (2, 2, 0, 2)]
    )
    project.change("gold/sent.sql", "silver.parcels", "silver.payments")
    assert effect() == "rebuild"


def test_many_rows_are_judged_where_no_column_says_where_they_came_from(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranged, "are_few", lambda files, rows: False)
    monkeypatch.setattr(ranged, "can_be_held", lambda files, rows: False)
    some = """CREATE STREAMING TABLE some (CONSTRAINT few EXPECT (nr < 2) ON VIOLATION DROP ROW)
AS SELECT nr FROM STREAM silver.orders"""
    project = Project({**FILES, "gold/some.sql": some}, tmp_path, spark=interpreted)
    project.send("orders", [record({"nr": nr, "id": 0, "shop": 0, "at": 0}) for nr in range(5)])
    assert sorted(project.step().rows("gold.some")) == [(0,), (1,)]
