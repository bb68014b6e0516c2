"""ASOF JOIN: of each row the nearest of another table, kept right whatever comes later."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from test_final import seeded
from test_joins import FILES, Row, drawn, record

from headwater.flows import computed
from headwater.project import sql
from headwater.project.definitions import Table
from headwater.testing import Project

ASOF = """CREATE MATERIALIZED VIEW {name} TBLPROPERTIES (
  'headwater.keys' = 'nr', 'headwater.refresh' = 'incremental strict'
) AS SELECT o.nr, p.nr AS parcel FROM silver.orders o {join} silver.parcels AS p
MATCH_CONDITION ({match}) ON {on} WHERE o.nr >= 0"""
VIEWS = {
    "before": ("ASOF JOIN", "o.at >= p.at", "o.id = p.id"),
    "earlier": ("LEFT ASOF JOIN", "p.at < o.at", "o.id = p.id"),
    "after": ("ASOF LEFT JOIN", "o.at <= p.at", "p.id = o.id AND o.shop = p.shop"),
    "later": ("ASOF JOIN", "p.at > o.at - INTERVAL 3 SECONDS", "o.id = p.id"),
}


def nearest(name: str, orders: list[Row], parcels: list[Row]) -> set[tuple[int, int | None]]:
    """What plain Python says."""
    found: set[tuple[int, int | None]] = set()
    for o in orders:
        same = [p for p in parcels if o["id"] is not None and p["id"] == o["id"]]
        same = [p for p in same if None not in (o["at"], p["at"])]
        if name == "after":
            same = [p for p in same if p["shop"] == o["shop"]]
        at = o["at"]
        fits = {
            "before": lambda p, at=at: p["at"] <= at,
            "earlier": lambda p, at=at: p["at"] < at,
            "after": lambda p, at=at: p["at"] >= at,
            "later": lambda p, at=at: p["at"] > at - 3,
        }[name]
        near = sorted((p for p in same if fits(p)), key=lambda p: (p["at"], p["nr"]))
        if near:
            found.add((o["nr"], near[-1 if name in ("before", "earlier") else 0]["nr"]))
        elif name in ("earlier", "after"):
            found.add((o["nr"], None))
    return found


def test_the_nearest_row_is_found_whatever_comes_later(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = seeded(random.randrange(2**32))
    monkeypatch.setattr(computed, "WHOLE", -1)
    views = {
        f"gold/{name}.sql": ASOF.format(name=f"v_{name}", join=join, match=match, on=on)
        for name, (join, match, on) in VIEWS.items()
    }
    project = Project({**FILES, **views}, tmp_path, spark=interpreted)
    rows: dict[str, list[Row]] = {"orders": [], "parcels": []}
    for _ in range(5):
        for name, known in rows.items():
            new = drawn(draw, draw.randint(1, 6), len(known))
            known += new
            project.send(name, [record(row) for row in new])
        project.step()
        for name in VIEWS:
            want = nearest(name, rows["orders"], rows["parcels"])
            assert {*project.rows(f"gold.v_{name}")} == want, name
    assert any(batch.keys_touched for batch in project.batches("gold.v_before"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "o ASOF JOIN x.v MATCH_CONDITION (o.t >= v.t) WHERE 1 = 1",
            "o JOIN (SELECT *, lead(`t`) OVER (ORDER BY `t`, struct(*)) AS _beside FROM x.v) `v` "
            "ON o.t >= `v`.`t` AND (`v`._beside IS NULL OR o.t < `v`._beside) WHERE 1 = 1",
        ),
        (
            "o LEFT ASOF JOIN v AS w MATCH_CONDITION (w.t > (o.t + 1)) ON w.k = o.k LEFT JOIN u ON u.k = o.k",
            "o LEFT JOIN (SELECT *, lag(`t`) OVER (PARTITION BY `k` ORDER BY `t`, struct(*)) AS _beside "
            "FROM v) AS w ON ((o.t + 1) < `w`.`t` AND (`w`._beside IS NULL OR (o.t + 1) >= `w`._beside)) "
            "AND ( w.k = o.k) LEFT JOIN u ON u.k = o.k",
        ),
    ],
)
def test_it_is_an_ordinary_join(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "t.sql"
    path.write_text(f"CREATE MATERIALIZED VIEW t AS SELECT 1 AS n FROM {text}", encoding="utf-8")
    (found,) = sql.parse(path, "gold")
    assert isinstance(found, Table) and found.sql is not None
    said = re.sub(r" AS `\w+`", "", " ".join(found.sql.bare(found.inputs).split()))
    assert said == f"SELECT 1 AS n FROM {wanted}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("v ON o.k = v.k", r"ASOF JOIN has no MATCH_CONDITION"),
        ("STREAM v MATCH_CONDITION (o.t >= v.t) ON o.k = v.k", "the nearest of all rows"),
        ("v MATCH_CONDITION (o.t = v.t) ON o.k = v.k", "compares by none of >=, >, <=, <"),
        ("v MATCH_CONDITION (o.t >= v.t + 1) ON o.k = v.k", "one side has to be a column of v"),
        ("v MATCH_CONDITION (v.a >= v.t) ON o.k = v.k", "one side has to be a column of v"),
        ("v MATCH_CONDITION (o.t >= v.t) ON o.k = v.k AND o.x < v.x", "ON more than equal columns"),
        ("v MATCH_CONDITION (o.t >= v.t) ON o.k = o.x", "one side has to be a column of v"),
        ("v MATCH_CONDITION (o.t >= v.t) USING (k)", "does not say whose columns"),
        ("FULL OUTER ASOF JOIN v MATCH_CONDITION (o.t >= v.t) ON o.k = v.k", "none of FULL"),
        ("ASOF RIGHT JOIN v MATCH_CONDITION (o.t >= v.t) ON o.k = v.k", "none of RIGHT"),
        ("ANTI ASOF JOIN v MATCH_CONDITION (o.t >= v.t) ON o.k = v.k", "none of ANTI"),
    ],
)
def test_what_tells_no_nearest_row_is_refused_by_its_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "t.sql"
    join = text if "JOIN" in text else f"ASOF JOIN {text}"
    path.write_text(f"CREATE MATERIALIZED VIEW t AS SELECT 1 AS n\nFROM o {join}", encoding="utf-8")
    with raises_code("STATEMENT_NOT_SUPPORTED", match=rf"t\.sql:2: .*{why}"):
        sql.parse(path, "gold")


def test_a_streaming_table_finds_none(interpreted: SparkSession, tmp_path: Path) -> None:
    said = f"{ASOF.format(name='x', join='ASOF JOIN', match='o.at >= p.at', on='o.id = p.id')}"
    said = f"CREATE STREAMING TABLE x AS {said[said.index('SELECT') :]}".replace("FROM ", "FROM STREAM ")
    with raises_code("ACROSS_ROWS", table="gold.x", match="ASOF JOIN looks for the nearest of all rows"):
        Project({**FILES, "gold/x.sql": said}, tmp_path, spark=interpreted).step()
