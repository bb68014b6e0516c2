"""Materialized views: what a query over whole tables gives, kept up to date by the changes alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from raising import raises_code

from headwater.errors import ProjectError
from headwater.flows import computed
from headwater.flows import view as viewing
from headwater.flows.aggregated import AggregateFlow
from headwater.flows.declared import flow_of
from headwater.flows.references import Outrun
from headwater.flows.view import ViewFlow
from headwater.operations.maintain.horizon import holds
from headwater.operations.rebuild.build import Now
from headwater.storage import log
from headwater.storage.parquet import Files
from headwater.storage.wake import Heads
from headwater.testing import Project

SALES, TOTALS, TOP = "silver.sales", "gold.totals", "gold.top"
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "conf/reference/items.csv": "item,name\n1,one\n2,two\n3,three\n4,four\n",
    "conf/reference/items.ddl": "item BIGINT, name STRING\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/sales.py": '''import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("item BIGINT, amount DOUBLE"))
def sales(raw):
    """One row per sale."""
    return raw.drop("_rescued")
''',
    "gold/totals.sql": """CREATE STREAMING TABLE gold.totals AS
        SELECT item, sum(amount) AS total, count(*) AS sales, avg(amount) AS mean
        FROM STREAM silver.sales GROUP BY item""",
}
TOP_SQL = """CREATE MATERIALIZED VIEW gold.top COMMENT 'The best three'
TBLPROPERTIES ('headwater.keys' = 'item') AS
SELECT rank() OVER (ORDER BY total DESC, t.item) AS place, t.item, name, total, mean
FROM gold.totals t LEFT JOIN reference.items i ON i.item = t.item ORDER BY total DESC, t.item LIMIT 3"""


class Sold(Project):
    """A project with a silver table that the test writes, and flows that it steps."""

    def __init__(self, root: Path, spark: SparkSession, files: Mapping[str, str], **options: Any) -> None:
        super().__init__({**FILES, **files}, root, spark=spark, **options)
        self.target(SALES)
        self.sold: list[tuple[int, float]] = []

    def sell(self, *sales: tuple[int, float]) -> None:
        self.append(SALES, [{"item": item, "amount": amount} for item, amount in sales])
        self.sold += sales

    def best(self) -> list[tuple[Any, ...]]:
        """What the view has to hold."""
        totals: dict[int, list[float]] = {}
        for item, amount in self.sold:
            totals.setdefault(item, []).append(amount)
        ranked = sorted(totals.items(), key=lambda pair: (-sum(pair[1]), pair[0]))[:3]
        names = {1: "one", 2: "two", 3: "three", 4: "four"}
        return [
            (at, item, names.get(item), sum(amounts), sum(amounts) / len(amounts))
            for at, (item, amounts) in enumerate(ranked, start=1)
        ]

    def changes(self, version: int) -> list[tuple[str, int]]:
        """The change feed of a version of the view: what became of which item."""
        commit = log.read(self.lake.place(TOP).path, version)
        files = [pq.read_table(file.path) for file in commit.changes or commit.added]
        found = [row for table in files for row in table.to_pylist()]
        return sorted((row.get("_change_type", "insert"), row["item"]) for row in found)


def no_result(frame: DataFrame, arrow: Callable[[DataFrame], pa.Table] = DataFrame.toArrow) -> pa.Table:
    """As rows come into this process, but those of the view."""
    assert "place" not in frame.columns
    return arrow(frame)


@pytest.mark.parametrize(("seed", "large"), [(0, False), (1, True)], ids=["few rows", "many rows"])
def test_after_each_step_it_is_what_the_query_gives(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, large: bool
) -> None:
    """Also where neither what the query gives nor what the table holds is in this process."""
    print(f"seed {seed}")
    if large:
        monkeypatch.setattr(computed, "FEW", -1)
    draw = random.Random(seed)
    case = Sold(tmp_path, interpreted, {"gold/top.sql": TOP_SQL})
    totals, top = case.flow(TOTALS), case.flow(TOP)
    for _ in range(8):
        case.sell(
            *[(draw.randrange(1, 7), float(draw.randrange(1, 50))) for _ in range(draw.randrange(1, 9))]
        )
        while totals.step():
            pass
        if draw.random() < 0.3:
            top = case.flow(TOP)  # as after a restart
        with monkeypatch.context() as none:
            if large:
                none.setattr(Files, "held", None)
                none.setattr(DataFrame, "toArrow", no_result)
            assert top.step()
        assert case.rows(TOP) == case.best()
        assert not top.step()
    assert log.read(case.lake.place(TOP).path, 1).operation == "WRITE"  # its first rows
    assert len(list(case.lake.place(TOP).path.glob("*-whole"))) == large


class Acts(Heads):
    """A run in which something happens whenever a flow waits."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        super().__init__()
        self._acts = iter(acts)

    def wait(self, beat: int, tables: Collection[str]) -> None:
        next(self._acts)()


def test_a_run_that_drains_what_is_there_computes_it_once(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Sold(tmp_path, interpreted, {"gold/top.sql": TOP_SQL})
    totals = case.flow(TOTALS)

    def sold(*sales: tuple[int, float]) -> None:
        case.sell(*sales)
        assert totals.step()

    heads = Acts(lambda: sold((1, 2.0)), lambda: sold((2, 3.0), (3, 1.0)), lambda: heads.end(TOTALS))
    case.flow(TOP, once=True, heads=heads).run()
    assert case.rows(TOP) == case.best()
    (batch,) = case.batches(TOP)
    assert (batch.rows_in, batch.rows_read, batch.rows_out) == (3, 3, 3)


PER_ITEM = """CREATE MATERIALIZED VIEW gold.per_item AS
SELECT item, sum(amount) AS total, count(*) AS sales FROM silver.sales GROUP BY item"""


@pytest.mark.parametrize(
    ("query_of", "flow"),
    [
        (PER_ITEM, AggregateFlow),
        (PER_ITEM.replace("AS\n", "TBLPROPERTIES ('headwater.keys' = 'item') AS\n"), AggregateFlow),
        (PER_ITEM.replace("GROUP", "WHERE amount > 20 GROUP"), AggregateFlow),
        (PER_ITEM + " HAVING sum(amount) > 0", ViewFlow),
        (PER_ITEM.replace("count(*)", "count(DISTINCT amount)"), ViewFlow),
        (PER_ITEM + " ORDER BY total LIMIT 2", ViewFlow),
        (
            PER_ITEM.replace("FROM silver.sales", "FROM silver.sales JOIN reference.items USING (item)"),
            ViewFlow,
        ),
        (PER_ITEM.replace("silver.sales", "gold.totals").replace("amount", "total"), ViewFlow),
        ("CREATE MATERIALIZED VIEW gold.per_item AS SELECT sum(amount) AS total FROM silver.sales", ViewFlow),
        (PER_ITEM.replace("AS\n", "TBLPROPERTIES ('headwater.refresh' = 'full') AS\n"), ViewFlow),
    ],
)
def test_an_aggregate_of_appended_rows_is_maintained_from_new_rows_alone(
    interpreted: SparkSession, tmp_path: Path, query_of: str, flow: type
) -> None:
    case = Sold(tmp_path, interpreted, {"gold/per_item.sql": query_of})
    totals, view = case.flow(TOTALS), case.flow("gold.per_item")
    assert type(view) is flow
    for sales in ([(1, 5.0), (2, 30.0)], [(1, 25.0), (3, 50.0), (2, 30.0)]):
        case.sell(*sales)
        totals.step()
        while view.step():
            pass
        select = query_of[query_of.index("SELECT") :].replace("silver.sales", "sales")
        select = select.replace("gold.totals", "totals").replace("reference.items", "items")
        with duckdb.connect() as plain:
            plain.register("sales", pa.Table.from_pylist([{"item": i, "amount": a} for i, a in case.sold]))
            plain.execute("CREATE TABLE totals AS SELECT item, sum(amount) AS total FROM sales GROUP BY item")
            plain.execute("CREATE TABLE items AS SELECT * FROM range(1, 5) t (item)")
            want = plain.execute(select).fetchall()
        assert case.rows("gold.per_item") == sorted(want, key=repr)


UNSOLD_SQL = """CREATE MATERIALIZED VIEW gold.unsold TBLPROPERTIES ('headwater.keys' = 'item') AS
SELECT item, total FROM gold.totals CROSS JOIN reference.clock
WHERE timestamp_seconds(CAST(total AS BIGINT)) < now - INTERVAL 2 MINUTES"""


def test_a_view_of_the_clock_changes_although_nothing_comes(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    case = Sold(tmp_path, interpreted, {"gold/unsold.sql": UNSOLD_SQL}, at="2026-01-01")
    at = case.clock.now().timestamp()
    case.sell((1, at), (2, at + 60))
    totals, unsold = case.flow(TOTALS), case.flow("gold.unsold")
    items = lambda: [item for item, _ in case.rows("gold.unsold")]  # noqa: E731
    assert totals.step() and unsold.step() and items() == []
    version = case.lake.place("gold.unsold")
    case.clock.advance("119s")
    assert not unsold.step() and items() == []  # nothing differs, so nothing is committed
    assert log.head(version.path) == 1
    case.clock.advance("2s")
    assert unsold.step() and items() == [1]
    case.clock.advance("60s")
    assert case.flow("gold.unsold").step() and items() == [1, 2]  # after a restart, too
    case.sell((1, 180.0))  # it is sold again
    unsold = case.flow("gold.unsold")
    assert totals.step() and unsold.step() and items() == [2]
    case.clock.advance("5 minutes")
    unsold = case.flow("gold.unsold", once=True)
    assert unsold.step() and items() == [1, 2]
    case.clock.advance(timedelta(minutes=-5))
    assert not unsold.step()  # once is once


def test_a_view_that_reads_another_table_now_is_computed_anew(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer = "CREATE MATERIALIZED VIEW gold.v AS SELECT item FROM gold.totals"
    case = Sold(tmp_path, interpreted, {"gold/v.sql": fewer})
    case.sell((1, 5.0), (2, 6.0))
    assert case.flow(TOTALS).step() and case.flow("gold.v").step()
    other = "CREATE MATERIALIZED VIEW gold.v AS SELECT DISTINCT item FROM silver.sales WHERE item > 1"
    case = Sold(tmp_path, interpreted, {"gold/v.sql": other})
    view = case.flow("gold.v")
    with monkeypatch.context() as patch:
        patch.setattr(view, "_build", lambda _: {}["killed"])
        with pytest.raises(KeyError):
            view.step()
    held = {hold.table: hold.version for hold in holds(case.definitions, case.lake) if hold.who == "gold.v"}
    assert held["silver.sales"] == log.head(case.lake.place("silver.sales").path)  # which it read not before
    view = case.flow("gold.v")
    assert case.rows("gold.v") == [(2,)] and not view.step()


def test_a_view_that_is_built_reads_on_where_the_version_it_was_to_read_is_kept_no_more(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "CREATE MATERIALIZED VIEW gold.v AS SELECT DISTINCT item FROM silver.sales"
    case = Sold(tmp_path, interpreted, {"gold/v.sql": query})
    case.sell((1, 5.0))
    bounds = Now(case.definitions, case.lake, ["gold.v"])

    def check(context: Any, place: Any, version: int) -> None:
        if version < log.head(place.path):
            raise Outrun

    monkeypatch.setattr(viewing, "check_kept", check)
    built: Any = flow_of(replace(case.context, bounds=bounds), "gold.v")
    case.sell((2, 6.0))
    for _ in range(2):
        assert built.step()
    assert case.rows("gold.v") == [(1,), (2,)] and not built.step()


def test_a_view_of_another_query_is_computed_anew_though_nothing_comes(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    fewer = "CREATE MATERIALIZED VIEW gold.v AS SELECT item FROM gold.totals WHERE item > 1"
    case = Sold(tmp_path, interpreted, {"gold/v.sql": fewer})
    case.sell((1, 5.0), (2, 6.0))
    assert case.flow(TOTALS).step() and case.flow("gold.v").step() and case.rows("gold.v") == [(2,)]
    case = Sold(tmp_path, interpreted, {"gold/v.sql": fewer.replace("> 1", "< 2")})
    view = case.flow("gold.v")
    assert view.step() and case.rows("gold.v") == [(1,)]
    assert not view.step() and not case.flow("gold.v").step()


def test_only_what_differs_is_committed(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Sold(tmp_path, interpreted, {"gold/top.sql": TOP_SQL})
    totals, top = case.flow(TOTALS), case.flow(TOP)
    case.sell((1, 10.0), (2, 20.0), (3, 30.0), (4, 1.0))
    assert totals.step() and top.step()
    assert case.changes(1) == [("insert", 1), ("insert", 2), ("insert", 3)]
    case.sell((4, 1.0))
    assert totals.step() and top.step()
    assert case.changes(2) == []  # its total is not among the best
    case.sell((4, 18.5))
    assert totals.step() and top.step()
    moved = [("update_postimage", 2), ("update_preimage", 2)]
    assert case.changes(3) == [("delete", 1), ("insert", 4), *moved]
    (tmp_path / "conf/reference/items.csv").write_text("item,name\n3,drei\n")
    assert top.step() and [row[2] for row in case.rows(TOP)] == ["drei", None, None]
    assert not top.step()


def test_a_function_may_be_a_view_and_all_columns_its_keys(interpreted: SparkSession, tmp_path: Path) -> None:
    function = '''import headwater as hw
@hw.materialized_view(source=["silver.sales", "gold.totals"], trigger="1s")
def top(sales, totals):
    """Amounts above their item's mean."""
    return sales.join(totals, "item").where("amount > mean").select("item", "amount").distinct()
'''
    case = Sold(tmp_path, interpreted, {"gold/top.py": function})
    totals, top = case.flow(TOTALS), case.flow(TOP)
    case.sell((1, 10.0), (1, 20.0), (1, 20.0), (2, 5.0))
    assert totals.step() and top.step() and case.rows(TOP) == [(1, 20.0)]
    case.sell((1, 90.0), (2, 6.0))
    assert totals.step() and top.step() and case.rows(TOP) == [(1, 90.0), (2, 6.0)]
    assert case.changes(2) == [("delete", 1), ("insert", 1), ("insert", 2)]


def test_rows_that_keys_do_not_tell_apart_stop_it(interpreted: SparkSession, tmp_path: Path) -> None:
    same = "CREATE MATERIALIZED VIEW gold.top AS SELECT item FROM silver.sales"
    case = Sold(tmp_path, interpreted, {"gold/top.sql": same})
    case.sell((1, 1.0), (1, 2.0), (2, 1.0))
    with raises_code(
        "KEYS_SHARED",
        table="gold.top",
        match=r"top\.sql:1: gold\.top has 1 keys that several rows share \(item\)",
    ):
        case.flow(TOP).step()
    assert case.rows(TOP) == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT item FROM STREAM silver.sales", "a view, which reads whole tables; leave out STREAM"),
        ("SELECT item FROM reference.items", "reads no table; name one that is written to"),
        ("SELECT item, rand() AS r FROM silver.sales", "differs when a batch is done again"),
        ("SELECT collect_list(item) AS items FROM silver.sales", "say in headwater.keys which columns do"),
        ("SELECT item FROM silver.sale", "did you mean silver.sales?"),
    ],
)
def test_what_can_be_no_view_is_refused(
    interpreted: SparkSession, tmp_path: Path, query: str, says: str
) -> None:
    with pytest.raises(ProjectError) as e:
        Sold(tmp_path, interpreted, {"gold/top.sql": f"CREATE MATERIALIZED VIEW gold.top AS {query}"})
    assert says in str(e.value)


def test_a_stream_can_not_aggregate_a_view(interpreted: SparkSession, tmp_path: Path) -> None:
    below = "CREATE STREAMING TABLE gold.below AS SELECT count(*) AS n FROM STREAM gold.top"
    with raises_code(
        "INPUT_ROWS_CHANGE", match="rows change in place; do that in a CREATE MATERIALIZED VIEW"
    ):
        Sold(tmp_path, interpreted, {"gold/top.sql": TOP_SQL, "gold/below.sql": below})


def test_a_view_may_read_a_reference_table_first(interpreted: SparkSession, tmp_path: Path) -> None:
    query = (
        "SELECT h.id, h.site, count(o.id) AS n FROM reference.hosts h LEFT JOIN silver.seen o ON h.id = o.id "
        "GROUP BY h.id, h.site"
    )
    files = {
        "bronze/raw.py": "import headwater as hw\n\nseen = hw.topic('seen')\n",
        "silver/seen.sql": "CREATE STREAMING TABLE seen TBLPROPERTIES ('headwater.decode' = 'json', "
        "'headwater.schema' = 'id INT') AS SELECT id FROM STREAM bronze.seen",
        "conf/reference/hosts.csv": "id,site\n1,a\n2,b\n",
        "conf/reference/hosts.ddl": "id INT, site STRING\n",
        "gold/v.sql": f"CREATE MATERIALIZED VIEW v TBLPROPERTIES ('headwater.keys' = 'id') AS {query}",
    }
    case = Project(files, tmp_path, spark=interpreted)
    case.send("seen", [{"id": 1}]).step()
    case.send("seen", [{"id": 1}]).step()
    assert sorted(case.rows("gold.v")) == [(1, "a", 2), (2, "b", 0)]
