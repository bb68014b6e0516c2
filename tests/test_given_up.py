"""A batch that was pinned and not carried out, and the definition that reads its rows is another one then."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.flows import computed
from headwater.runtime import failpoints
from headwater.storage.names import state_name
from headwater.testing import Project

TOPICS = ("orders", "moves")
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "conf/reference/names.csv": "shop,name\n1,one\n",
    "conf/reference/names.ddl": "shop INT, name STRING\n",
    "bronze/raw.py": "import headwater as hw\n"
    + "".join(f'{name} = hw.topic("{name}")\n' for name in TOPICS),
    **{
        f"silver/{name}.sql": f"CREATE STREAMING TABLE {name} TBLPROPERTIES ('headwater.decode' = 'json', "
        f"'headwater.schema' = 'nr INT, shop INT') AS SELECT nr, shop, _source FROM STREAM bronze.{name}"
        for name in TOPICS
    },
    "silver/newest.sql": "CREATE STREAMING TABLE newest FLOW AUTO CDC FROM STREAM silver.moves KEYS (shop) "
    "SEQUENCE BY nr COLUMNS (shop, nr)",
}
PLAIN = "CREATE STREAMING TABLE placed AS SELECT o.nr, 'none' AS name FROM STREAM silver.orders o"
NAMED = PLAIN.replace("'none'", "s.name") + " LEFT JOIN reference.names s USING (shop)"
MOVED = PLAIN.replace("'none'", "CAST(s.nr AS STRING)") + " LEFT JOIN silver.newest s USING (shop)"


OF_ORDERS, OF_BOTH = (
    "CREATE MATERIALIZED VIEW placed TBLPROPERTIES ('headwater.keys' = 'shop') AS "
    f"SELECT shop, count(DISTINCT nr) AS n FROM {rows} GROUP BY shop"
    for rows in (
        "silver.orders",
        "(SELECT shop, nr FROM silver.orders UNION SELECT shop, -nr FROM silver.moves)",
    )
)
MIDDLE = OF_ORDERS.replace("count(DISTINCT nr)", "CAST(percentile(nr, 0.5) AS BIGINT)")


def killed(
    project: Project, monkeypatch: pytest.MonkeyPatch, *points: str, table: str = "gold.placed"
) -> None:
    """Begin a batch of a table that ends at a step, of those that it comes to."""
    left = [*points]

    def reach(name: str, flow: str) -> None:
        if flow == table and left and name == left[0]:
            left.pop(0)
            if not left:
                raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", reach)
        with pytest.raises(KeyboardInterrupt):
            project.step(table)


def filled(spark: SparkSession, tmp_path: Path, placed: str) -> Project:
    project = Project({**FILES, "gold/placed.sql": placed}, tmp_path, spark=spark)
    for topic in TOPICS:
        project.send(topic, [{"nr": nr, "shop": 1} for nr in (1, 2)])
    return project.step(*(f"silver.{topic}" for topic in TOPICS), "silver.newest_changes", "silver.newest")


@pytest.mark.parametrize(("after", "name"), [(NAMED, "one"), (MOVED, "2")], ids=["reference", "as it is"])
def test_what_a_stream_meets_now_is_not_looked_for_in_what_was_pinned(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, name: str
) -> None:
    project = filled(interpreted, tmp_path, PLAIN)
    killed(project, monkeypatch, "pinned")
    (project.root / "gold/placed.sql").write_text(after)
    assert sorted(project.restart().step("gold.placed").rows("gold.placed")) == [(1, name), (2, name)]


def test_a_reference_table_has_a_column_more(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = filled(interpreted, tmp_path, NAMED)
    killed(project, monkeypatch, "pinned")
    names = project.root / "conf/reference"
    (names / "names.csv").write_text("shop,name,city\n1,uno,Bern\n")
    (names / "names.ddl").write_text("shop INT, name STRING, city STRING\n")
    assert sorted(project.restart().step("gold.placed").rows("gold.placed")) == [(1, "uno"), (2, "uno")]


@pytest.mark.parametrize("points", [["pinned"], ["staged"], ["committing"]], ids="-".join)
@pytest.mark.parametrize(("after", "n"), [(OF_BOTH, 6), (MIDDLE, 2)], ids=["one more input", "no state"])
def test_a_view_is_computed_by_the_definition_that_there_is(
    interpreted: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    points: list[str],
    after: str,
    n: int,
) -> None:
    monkeypatch.setattr(computed, "WHOLE", -1)
    project = filled(interpreted, tmp_path, OF_ORDERS)
    project.step("gold.placed")
    project.send("orders", [{"nr": 3, "shop": 1}, {"nr": 4, "shop": 1}]).step("silver.orders")
    assert state_name("gold.placed") in project.lake.places()
    killed(project, monkeypatch, *points)
    (project.root / "gold/placed.sql").write_text(after)
    assert project.restart().step("gold.placed").rows("gold.placed") == [(1, n)]
    project.send("orders", [{"nr": nr, "shop": 1} for nr in (5, 6)]).step("silver.orders", "gold.placed")
    assert project.rows("gold.placed") == [(1, 8 if n == 6 else 3)]


@pytest.mark.parametrize("point", ["pinned", "staged"])
def test_a_table_asks_its_lookup_no_more(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    said = FILES["silver/orders.sql"]
    asks = {
        "silver/kinds.py": """import headwater as hw

def fetch(keys):
    return [{**key, "kind": "known"} for key in keys]

kinds = hw.lookup(fetch, keys="shop", columns="kind STRING", ttl="1 hour")
""",
        "silver/orders.sql": said.replace("(", "('headwater.lookup' = 'kinds', ", 1).replace(
            "shop, _s", "kind, _s"
        ),
    }
    project = Project({**FILES, **asks}, tmp_path, spark=interpreted)
    project.send("orders", [{"nr": 1, "shop": 1}])
    killed(project, monkeypatch, point, table="silver.orders")
    (project.root / "silver/orders.sql").write_text(
        said.replace("shop, _s", "CAST(shop AS STRING) AS kind, _s")
    )
    project.restart().send("orders", [{"nr": 2, "shop": 1}]).step("silver.orders")
    before = "known" if point == "staged" else "1"
    assert sorted(project.rows("silver.orders", "nr, kind")) == [(1, before), (2, "1")]
