"""Streams joined with tables as they are: each row meets what there is when its batch is begun, and stays."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from raising import raises_code
from test_final import seeded

from headwater.errors.codes import Code
from headwater.flows import inputs, ranged
from headwater.operations import maintain
from headwater.operations.rebuild import rebuild
from headwater.operations.rebuild.reconcile import reconcile
from headwater.planner import explained
from headwater.planner.changes import plan
from headwater.runtime import failpoints
from headwater.storage.intent import Intent, IntentFile
from headwater.testing import Project, apply

DECODE = (
    "TBLPROPERTIES ('headwater.decode' = 'json', 'headwater.schema' = '{}') AS SELECT {}, _source FROM STREAM"
)
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\n"
    + "".join(f'{name} = hw.topic("{name}")\n' for name in ("orders", "shops", "moves")),
    "silver/orders.sql": "CREATE STREAMING TABLE orders "
    + DECODE.format("nr INT, shop INT", "nr, shop")
    + " bronze.orders",
    "silver/shops.sql": "CREATE STREAMING TABLE shops TBLPROPERTIES ('headwater.decode' = 'json', "
    "'headwater.schema' = 'shop INT, city STRING, at INT') FLOW AUTO CDC FROM STREAM bronze.shops "
    "KEYS (shop) SEQUENCE BY at COLUMNS (shop, city)",
    "gold/placed.sql": "CREATE STREAMING TABLE placed AS SELECT o.nr, s.city "
    "FROM STREAM silver.orders o LEFT JOIN silver.shops s ON s.shop = o.shop",
}
PYTHON = """
import headwater as hw

@hw.table(source="silver.orders", snapshots="silver.shops")
def placed(orders, shops):
    return orders.join(shops, "shop", "left").select("nr", "city")
"""
PIPELINES = """
from pyspark import pipelines as dp

@dp.table
def placed():
    orders, shops = spark.readStream.table("silver.orders"), spark.read.table("silver.shops")
    return orders.join(shops, "shop", "left").select("nr", "city")
"""


def orders(project: Project, *numbers: int, shop: int = 1) -> Project:
    return project.send("orders", [{"nr": nr, "shop": shop} for nr in numbers])


def moved(project: Project, shop: int, city: str, at: int) -> Project:
    return project.send("shops", [{"shop": shop, "city": city, "at": at}])


def files(way: str) -> dict[str, str]:
    if way == "sql":
        return FILES
    return {**FILES, "gold/placed.sql": "", "gold/placed.py": PYTHON if way == "python" else PIPELINES}


@pytest.mark.parametrize("way", ["sql", "python", "pipelines"])
def test_a_row_meets_the_table_as_it_is(interpreted: SparkSession, tmp_path: Path, way: str) -> None:
    said = {name: text for name, text in files(way).items() if text}
    project = Project(said, tmp_path, spark=interpreted)
    orders(project, 1).step()  # there is no table of shops yet
    moved(project, 1, "Bern", 1).step()
    orders(project, 2).step("silver.orders", "gold.placed")
    moved(project, 1, "Oslo", 2).step()
    orders(project, 3).step()
    assert sorted(project.rows("gold.placed")) == [(1, None), (2, "Bern"), (3, "Oslo")]
    rebuild(project.definitions, ["gold.placed"])
    assert sorted(project.restart().rows("gold.placed")) == [(1, "Oslo"), (2, "Oslo"), (3, "Oslo")]


@pytest.mark.parametrize("few", [True, False], ids=["in memory", "by Spark"])
def test_what_was_pinned_is_met_again(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    draw = seeded(random.randrange(2**32))
    if not few:
        monkeypatch.setattr(ranged, "are_few", lambda files, rows: False)
        monkeypatch.setattr(ranged, "can_be_held", lambda files, rows: False)
        monkeypatch.setattr(inputs, "are_few", lambda files, rows: False)
    project = Project(FILES, tmp_path, spark=interpreted)
    want = []
    for turn in range(4):
        for shop in draw.sample(range(3), 2):
            moved(project, shop, f"{shop} in {turn}", turn)
        project.step()
        cities = dict(project.rows("silver.shops", "shop, city"))
        shop = draw.randrange(3)
        want.append((turn, cities.get(shop)))
        orders(project, turn, shop=shop).step("silver.orders")
        with monkeypatch.context() as killed:
            killed.setattr(failpoints, "reach", _fails_at("pinned"))
            with pytest.raises(KeyboardInterrupt):
                project.step("gold.placed")
        moved(project, shop, "later", turn).step("silver.shops_changes", "silver.shops")
        maintain.maintain(project.definitions)
        project.restart().flow("gold.placed")  # which does what the killed one left
        assert sorted(project.rows("gold.placed")) == want


def _fails_at(point: str) -> Any:
    def reach(name: str, flow: str) -> None:
        if (name, flow) == (point, "gold.placed"):
            raise KeyboardInterrupt

    return reach


def test_a_run_that_ends_reads_it_when_it_has_ended(interpreted: SparkSession, tmp_path: Path) -> None:
    project = Project(FILES, tmp_path, spark=interpreted)
    orders(moved(project, 1, "Bern", 1), 1).end()
    assert project.rows("gold.placed") == [(1, "Bern")]


def test_what_else_may_meet_it(interpreted: SparkSession, tmp_path: Path) -> None:
    more = {
        "silver/moves.py": """
import headwater as hw

@hw.table(source="bronze.moves", snapshots=["silver.shops"], decode=hw.json("nr INT, shop INT"))
def moves(moves, shops):
    return moves.join(shops, "shop", "left").select("nr", "city", "_source", "ingested_at")
""",
        "gold/per_city.sql": "CREATE STREAMING TABLE per_city AS SELECT city, count(*) AS n FROM "
        "STREAM silver.orders o JOIN silver.shops s ON s.shop = o.shop GROUP BY city",
        "gold/both.sql": "CREATE STREAMING TABLE both AS SELECT o.nr, m.nr AS move, s.city FROM "
        "STREAM silver.orders o JOIN STREAM silver.moves m ON m.nr = o.nr "
        "JOIN silver.shops s ON s.shop = o.shop",
        "gold/all.sql": "CREATE STREAMING TABLE all;\n"
        "CREATE FLOW a AS INSERT INTO all BY NAME SELECT o.nr, s.city FROM STREAM silver.orders o "
        "JOIN silver.shops s ON s.shop = o.shop;\n"
        "CREATE FLOW b AS INSERT INTO all BY NAME SELECT nr, city FROM STREAM silver.moves;",
    }
    project = Project({**FILES, **more}, tmp_path, spark=interpreted)
    moved(project, 1, "Bern", 1).step()
    orders(project, 1, 2).send("moves", [{"nr": 2, "shop": 1}, b"?"]).step()
    assert sorted(project.rows("gold.per_city")) == [("Bern", 2)]
    assert project.rows("gold.both") == [(2, 2, "Bern")]
    assert sorted(project.rows("gold.all")) == [(1, "Bern"), (2, "Bern"), (2, "Bern")]
    assert len(project.rows("quarantine.silver_moves")) == 1
    found = apply(
        project,
        "gold.placed",
        {"silver.orders": [{"nr": 7, "shop": 3}], "silver.shops": [{"shop": 3, "city": "Zug"}]},
    )
    assert found.rows == [{"nr": 7, "city": "Zug"}]


def test_the_table_may_look_like_the_stream(interpreted: SparkSession, tmp_path: Path) -> None:
    same = FILES["silver/orders.sql"].replace("orders", "moves")
    query = "SELECT o.nr, m.shop FROM STREAM silver.orders o JOIN silver.moves m USING (nr)"
    sql = f"CREATE STREAMING TABLE t AS {query}"
    project = Project({**FILES, "silver/moves.sql": same, "gold/t.sql": sql}, tmp_path, spark=interpreted)
    project.send("moves", [{"nr": 1, "shop": 5}]).step()
    assert orders(project, 1, 2).step().rows("gold.t") == [(1, 5)]


def test_what_is_said_of_it(interpreted: SparkSession, tmp_path: Path) -> None:
    project = orders(Project(FILES, tmp_path, spark=interpreted), 1)
    moved(project, 1, "Bern", 1).step()
    context = project.context
    (found,) = explained.explain(context.spark, context.project, ["gold.placed"])
    assert found.snapshots == (
        "silver.shops as it is when a batch is begun: what changes later corrects nothing",
    )
    (compared,) = reconcile(project.definitions, ["gold.placed"])
    assert compared.same and any("silver.shops as of now" in note for note in compared.notes)
    project.change(
        "gold/placed.sql", "silver.shops s", "silver.shops s2 JOIN silver.shops s ON s2.shop = s.shop AND"
    )
    project.change("gold/placed.sql", "AND ON", "AND")
    assert plan(project.definitions, ["gold.placed"])[-1].verdict.effect == "resumes"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (
            "SELECT o.nr FROM STREAM silver.orders o RIGHT JOIN silver.shops s ON s.shop = o.shop",
            "JOIN_REPEATS_ROWS",
        ),
        ("SELECT o.nr FROM silver.orders o JOIN silver.shops s ON s.shop = o.shop", "STREAM_MISSING"),
        ("SELECT o.nr FROM STREAM silver.orders o JOIN gold.placed s ON s.nr = o.nr", None),
        ("SELECT o.nr FROM STREAM silver.orders o JOIN gold.t s ON s.nr = o.nr", "DEFINITIONS_CYCLE"),
    ],
)
def test_what_can_not_be(interpreted: SparkSession, tmp_path: Path, query: str, code: Code | None) -> None:
    project = Project(
        {**FILES, "gold/t.sql": f"CREATE STREAMING TABLE t AS {query}"}, tmp_path, spark=interpreted
    )
    if code is None:
        assert project.tables["gold.t"].kind == "rows"
        return
    with raises_code(code):
        _ = project.tables


@pytest.mark.parametrize("view", [False, True], ids=["a stream", "a view"])
def test_a_version_that_goes_before_it_is_pinned_is_not_met(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: bool
) -> None:
    placed = (
        "CREATE MATERIALIZED VIEW placed AS SELECT o.nr, s.city "
        "FROM silver.orders o LEFT JOIN silver.shops s USING (shop)"
    )
    said = {**FILES, "conf/local.yaml": "kafka: embedded\nmaintain: {keep: 0s}\n"}
    project = Project({**said, "gold/placed.sql": placed} if view else said, tmp_path, spark=interpreted)
    orders(moved(project, 1, "Bern", 1), 1).step("silver.orders", "silver.shops_changes", "silver.shops")
    _cleaned(project)  # its log has no beginning any more, by which who has not begun yet would hold it
    written = IntentFile.write

    def stands_still(file: IntentFile, intent: Intent) -> Intent:
        monkeypatch.setattr(IntentFile, "write", written)
        for at, city in enumerate(("Oslo", "Rome"), 2):
            moved(project, 1, city, at).step("silver.shops_changes", "silver.shops")
            _cleaned(project)
        return written(file, intent)

    monkeypatch.setattr(IntentFile, "write", stands_still)
    project.step("gold.placed")
    assert project.rows("gold.placed") == [(1, "Rome")]


def _cleaned(project: Project) -> None:
    """Remove what tables were, as a run's maintenance does after an hour."""
    for place in project.lake.places().values():
        DeltaTable(place.path).create_checkpoint()
    maintain.maintain(project.definitions)
