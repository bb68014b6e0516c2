"""Views that are kept by the rows that changes touch: after each batch what the query gives over all rows."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from commands import call
from pyspark.sql import SparkSession
from raising import raises_code

from headwater.flows import computed
from headwater.flows.by_touched import ByTouched
from headwater.flows.view import ViewFlow
from headwater.planner.analysis import analyse
from headwater.storage import log
from headwater.storage.intent import Intent
from headwater.testing import Project

RAW = "import headwater as hw\nraw = hw.topic('raw')\n"
SILVER = """import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("{columns}"))
def {name}(raw):
    return raw.drop("_rescued")
"""
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "conf/reference/items.csv": "k,name\n1,one\n2,two\n3,three\n",
    "conf/reference/items.ddl": "k BIGINT, name STRING\n",
    "bronze/raw.py": RAW,
    "silver/a.py": SILVER.format(
        name="a", columns="id BIGINT, k BIGINT, x INT, s STRING, l ARRAY<INT>, m STRUCT<a: INT, b: STRING>"
    ),
    "silver/b.py": SILVER.format(name="b", columns="k BIGINT, y INT, c BIGINT"),
    # Its rows change, and go.
    "gold/few.sql": """CREATE MATERIALIZED VIEW gold.few TBLPROPERTIES ('headwater.keys' = 'k') AS
        SELECT k, count(*) AS n, max(x) AS x FROM silver.a GROUP BY k HAVING count(*) % 4 > 0""",
}
A, B, FEW = "silver.a", "silver.b", "gold.few"
# (query, keys): of each several inputs, changing in every way.
KEPT = {
    "inner": ("SELECT a.id, b.y, b.c FROM silver.a a JOIN silver.b b ON a.k = b.k AND b.y > a.x", ""),
    "left": ("SELECT a.id, a.k, few.n, a.l, a.m FROM silver.a a LEFT JOIN gold.few few ON a.k = few.k", "id"),
    "right": ("SELECT few.n, b.k, b.y, b.c FROM gold.few few RIGHT JOIN silver.b b ON few.k = b.k", ""),
    "full": (
        "SELECT k, count(DISTINCT x) AS n, sum(y) AS y FROM (SELECT k, few.x, b.y FROM gold.few few "
        "FULL JOIN silver.b b USING (k)) GROUP BY k",
        "k",
    ),
    "semi": (
        "SELECT id, s FROM silver.a a WHERE EXISTS (SELECT 1 FROM gold.few f WHERE f.k = a.k AND f.n > a.x)",
        "id",
    ),
    "anti": (
        "SELECT id, k FROM silver.a a WHERE NOT EXISTS (SELECT 1 FROM silver.b b WHERE b.c = a.k)",
        "id",
    ),
    "in": ("SELECT id, k FROM silver.a WHERE k IN (SELECT k FROM gold.few) AND x > 2", "id"),
    "scalar": ("SELECT a.id, (SELECT max(y) FROM silver.b b WHERE b.k = a.k) AS m FROM silver.a a", "id"),
    "groups": (
        "SELECT k, count(DISTINCT s) AS n, percentile(x, 0.5) AS half FROM silver.a GROUP BY k "
        "HAVING max(x) > 1",
        "k",
    ),
    "changing": ("SELECT n, count(*) AS ks, min(x) AS x FROM gold.few GROUP BY n", "n"),
    "joined groups": (
        "SELECT b.c, count(*) AS n, max(few.n) AS m FROM silver.b b JOIN gold.few few ON few.k = b.k "
        "GROUP BY b.c",
        "c",
    ),
    "ranks": (
        "SELECT * FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY x, id) AS r FROM silver.a) "
        "WHERE r <= 2",
        "",
    ),
    "distinct": ("SELECT DISTINCT k, s FROM silver.a WHERE x > 0", ""),
    "union": ("SELECT k, n, 'few' AS of FROM gold.few UNION SELECT k, y, 'b' FROM silver.b", ""),
    "except": ("SELECT k FROM silver.a EXCEPT SELECT k FROM gold.few", ""),
    "intersect": ("SELECT k FROM silver.b INTERSECT SELECT k FROM gold.few", ""),
    "itself": ("SELECT DISTINCT a.id, o.x FROM silver.a a JOIN silver.a o ON a.k = o.id", ""),
    "with": (
        "WITH t AS (SELECT k, max(y) AS m FROM silver.b GROUP BY k) "
        "SELECT a.id, t.m, u.m AS other FROM silver.a a LEFT JOIN t ON a.k = t.k LEFT JOIN t u ON a.x = u.k",
        "id",
    ),
    "three": (
        "SELECT a.id, i.name, few.n FROM silver.a a LEFT JOIN reference.items i ON a.k = i.k "
        "LEFT JOIN gold.few few ON few.k = a.k",
        "id",
    ),
    "chain": (
        "SELECT DISTINCT a.id, few.n FROM silver.a a JOIN silver.b b ON a.k = b.k "
        "JOIN gold.few few ON b.c = few.k",
        "",
    ),
}
ANEW = {
    "best": ("SELECT id, x FROM silver.a ORDER BY x DESC, id LIMIT 3", "", "LIMIT"),
    "all": ("SELECT median(x) AS n, 1 AS one FROM gold.few", "one", "an aggregate without GROUP BY"),
    "over": (
        "SELECT id, rank() OVER (ORDER BY id) AS r FROM silver.a",
        "id",
        "a window function without PARTITION BY",
    ),
    "unpivoted": (
        "SELECT * FROM gold.few UNPIVOT (v FOR name IN (n, x))",
        "",
        "GROUPING SETS, ROLLUP or CUBE",
    ),
    "range": (
        "SELECT a.id, f.k FROM silver.a a JOIN gold.few f ON a.x > f.n",
        "",
        "to find what a change of silver.a touches, all rows of an input are needed",
    ),
    "not in": (
        "SELECT id FROM silver.a WHERE k NOT IN (SELECT k FROM gold.few)",
        "id",
        "to find what a change of silver.a touches, all rows of an input are needed",
    ),
    "computed": (
        "SELECT n % 2 AS odd, median(x) AS x FROM gold.few GROUP BY n % 2",
        "odd",
        "no key tells which rows a change of gold.few touches",
    ),
    "clock": (
        "SELECT id FROM silver.a CROSS JOIN reference.clock WHERE now > '2026-01-01'",
        "id",
        "it reads reference.clock",
    ),
}


def definitions(queries: dict[str, tuple[str, ...]], refresh: str = "auto") -> dict[str, str]:
    """A view for each query."""
    found = {}
    for name, (query, keys, *_) in queries.items():
        view = f"gold.v_{name.replace(' ', '_')}"
        said = f"'headwater.refresh' = '{refresh}'" + (f", 'headwater.keys' = '{keys}'" if keys else "")
        found[f"{view.replace('.', '/')}.sql"] = (
            f"CREATE MATERIALIZED VIEW {view} TBLPROPERTIES ({said}) AS {query}"
        )
    return found


class Changing(Project):
    """A project whose two silver tables the test writes."""

    def __init__(
        self,
        root: Path,
        spark: SparkSession,
        queries: dict[str, tuple[str, str]],
        files: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__({**FILES, **files, **definitions(queries, "incremental strict")}, root, spark=spark)
        self.views = [path[:-4].replace("/", ".") for path in definitions(queries)]
        self.next = 0
        for name in (A, B):
            self.target(name)

    def change(self, draw: random.Random) -> None:
        """Rows into one of the tables, or both."""
        key = lambda: draw.choice([*range(6), None])  # noqa: E731
        which = draw.choice([(A,), (B,), (A, B)])
        if A in which:
            rows = []
            for _ in range(draw.randint(1, 4)):
                more = {
                    "l": draw.choice([[1, None], [], None]),
                    "m": draw.choice([{"a": 1, "b": None}, None]),
                }
                rows.append(
                    {"id": self.next, "k": key(), "x": draw.randrange(6), "s": draw.choice("pq"), **more}
                )
                self.next += 1
            self.append(A, rows)
        if B in which:
            self.append(
                B, [{"k": key(), "y": draw.randrange(6), "c": key()} for _ in range(draw.randint(1, 3))]
            )


def anew(flow: ViewFlow) -> int:
    """How many rows of a view would change if all were computed anew, over what it has read."""
    consumed = flow._consumed()
    assert consumed is not None
    references = {name: at["version"] for name, at in consumed.items() if name not in flow._inputs}
    intent = Intent(flow.name, 1, 10**6, consumed, clock=flow._context.clock(), references=references)
    found = flow._computed.of_all(intent, flow._pinned(intent))
    return sum(map(len, found.parts.values()))


@pytest.mark.parametrize("seed", [1])
def test_after_each_batch_they_are_what_their_queries_give(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    monkeypatch.setattr(computed, "WHOLE", -1)
    case = Changing(tmp_path, interpreted, KEPT)
    touched: set[str] = set()
    of_made = ByTouched.of_made

    def noted(self: ByTouched, *args: Any) -> Any:
        found = of_made(self, *args)
        touched.add(self._view.target.place.name)
        return found

    monkeypatch.setattr(ByTouched, "of_made", noted)
    flows: dict[str, Any] = {name: case.flow(name) for name in (FEW, *case.views)}
    for turn in range(7):
        case.change(draw)
        for flow in flows.values():
            while flow.step():
                pass
        for name in case.views if turn % 2 == 0 else ():
            assert anew(flows[name]) == 0, (seed, turn, name)
    assert touched >= {*case.views}


def test_rows_that_are_new_are_added_and_merged_with_none(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though other rows have keys before and behind theirs; and whoever reads the view sees what came."""
    monkeypatch.setattr(computed, "WHOLE", -1)
    above = {"above": ("SELECT k, count(*) AS n FROM gold.v_left GROUP BY k", "k")}
    files = {**FILES, **definitions({"left": KEPT["left"], **above})}
    case = Project(files, tmp_path, spark=interpreted)
    place, ids = case.target("gold.v_left").place, list[int]()
    turns = [
        ([1, 9], [], "WRITE"),
        ([5], ["v_left"], "WRITE"),
        ([4, 6], ["v_left"], "WRITE"),
        ([3, 7], [], "MERGE"),
    ]
    for came, stepped, operation in turns:
        ids += came
        case.append(A, [{"id": id, "k": 7, "x": 1} for id in came])
        case.step(*(f"gold.{name}" for name in stepped)).step("gold.v_above")
        assert log.read(place.path, log.head(place.path)).operation == operation
        assert sorted(case.rows("gold.v_left", "id")) == [(id,) for id in sorted(ids)]
        assert case.rows("gold.v_above") == [(7, len(ids))]
    assert {*case.rows("gold.v_left", "n")} == {(7,)}  # as all were stepped, what they are joined with, too


def test_why_others_are_computed_anew(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Project({**FILES, **definitions(ANEW)}, tmp_path, spark=interpreted)
    told = {name: table.anew for name, table in analyse(interpreted, case.definitions).items()}
    for name, (_, _, why) in ANEW.items():
        assert told[f"gold.v_{name.replace(' ', '_')}"] == why


def test_what_is_to_be_kept_so_and_can_not_is_refused(interpreted: SparkSession, tmp_path: Path) -> None:
    wrong = {"best": ANEW["best"]}
    case = Project({**FILES, **definitions(wrong, "incremental strict")}, tmp_path, spark=interpreted)
    with raises_code("NOT_INCREMENTAL", match="computed anew: LIMIT", table="gold.v_best"):
        analyse(interpreted, case.definitions)


def test_explain_says_how_tables_are_kept(interpreted: SparkSession, tmp_path: Path) -> None:
    views = {name: (KEPT | ANEW)[name] for name in ("chain", "left", "best")}
    Project({**FILES, **definitions(views)}, tmp_path, spark=interpreted)
    said = {one["table"]: one for one in json.loads(call(["explain", "--json"], tmp_path).stdout)}
    assert said["silver.a"]["way"] == "each new row once" and not said["silver.a"]["touched"]
    assert said["gold.v_best"] | {"touched": []} == {
        "table": "gold.v_best",
        "way": "all of it is computed anew",
        "why": "LIMIT",
        "touched": [],
        "joins": [],
        "lookup": "",
        "snapshots": [],
        "beside": {},
    }
    of_a, of_few = said["gold.v_left"]["touched"]
    assert of_a == {
        "source": A,
        "columns": ["id"],
        "through": [],
        "needs": {A: ["id"], FEW: ["k"]},
    }
    assert (of_few["source"], of_few["columns"], of_few["through"]) == (FEW, ["id"], ["silver.a.k → id"])
    (of_b,) = (one for one in said["gold.v_chain"]["touched"] if one["source"] == B)
    assert (of_b["columns"], of_b["through"]) == (["id"], ["silver.a.k → id"])
    told = call(["explain", "gold.v_left", "gold.v_best"], tmp_path).stdout
    assert "all of it is computed anew: LIMIT" in told and "silver.a" in told
    assert call(["explain", "gold.v_lift"], tmp_path).returncode == 2
