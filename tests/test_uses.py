"""What a definition's function uses, and what its query reads in which place, is part of it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headwater.planner.analysis.fingerprint import fingerprint
from headwater.planner.changes.facts import Facts, facts
from headwater.planner.changes.verdict import judge
from headwater.project.load import load_project

FILES = {
    "conf/local.yaml": "lake: lake\n",
    "conf/reference/eur.csv": "k,rate\na,1\n",
    "conf/reference/eur.sql": "k STRING, rate BIGINT\n",
    "bronze/raw.py": "import headwater as hw\n\nraw = hw.topic('raw')\n",
    "silver/rows.py": """
        import headwater as hw
        from pyspark.sql import functions as F

        LIMIT, UNUSED = 5, 1
        NAMES = {"b", "a"}

        class Kept:
            least = 1

        def _good(rows, least):
            return rows.where(F.col("n") > least)

        def made(most):
            @hw.table(source="bronze.raw", decode=hw.json("k STRING, n BIGINT"))
            def rows(raw):
                return _good(raw, LIMIT).where([F.col("k") != name for name in NAMES][0] < Kept.least + most)

            return rows

        rows = made(7)
    """,
    "silver/items.py": """
        import headwater as hw

        items = hw.auto_cdc(
            source="bronze.raw", keys=["k"], sequence_by="n", decode=hw.json("k STRING, n BIGINT, v BIGINT")
        )
    """,
    "silver/ab.sql": """
        CREATE TEMPORARY VIEW few AS SELECT * FROM silver.rows WHERE n < 3;
        CREATE MATERIALIZED VIEW silver.ab AS
          SELECT x.k, y.n FROM few AS x LEFT JOIN silver.rows AS y ON x.k = y.k;
    """,
}


def written(root: Path, files: Mapping[str, str]) -> Any:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text))
    return load_project(root)


def known(project: Any, name: str, kind: str) -> tuple[Facts, str]:
    outline: Any = SimpleNamespace(kind=kind, stored=pa.schema([("k", pa.string())]), keys=())
    return facts(project, name, outline), fingerprint(project, project.definition(name))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("LIMIT, UNUSED = 5, 1", "LIMIT, UNUSED = 6, 1", "LIMIT changed"),
        ('"b", "a"', '"b", "c"', "NAMES changed"),
        ("> least", ">= least", "_good changed"),
        ("made(7)", "made(8)", "most changed"),
        ("least = 1", "least = 2", "Kept.least changed"),
        ("LIMIT, UNUSED = 5, 1", "LIMIT, UNUSED = 5, 2", ""),
        ('"b", "a"', '"a", "b"', ""),
        ('rows.where(F.col("n") > least)', "(rows.where(F.col('n')\n                > least))", ""),
        ("return _good(raw, LIMIT)", "return _good(raw,\n                    LIMIT,)", ""),
    ],
)
def test_what_a_function_uses_is_part_of_it(tmp_path: Path, old: str, new: str, told: str) -> None:
    file = "silver/rows.py"
    before, mark = known(written(tmp_path, FILES), "silver.rows", "aggregate")
    text = FILES[file].replace(old, new)
    assert text != FILES[file]
    now, other = known(written(tmp_path, {file: text}), "silver.rows", "aggregate")
    assert (mark != other) == bool(told)
    verdict = judge(before, now)
    assert verdict.effect == ("rebuild" if told else "unchanged")
    assert verdict.why == ((f"what it uses: {told}",) if told else ())
    assert judge(before | {"kind": "rows"}, now | {"kind": "rows"}).effect == (
        "resumes" if told else "unchanged"
    )
    without = {name: fact for name, fact in before.items() if name not in ("what it uses", "reads")}
    assert judge(without, now).effect == "unchanged"  # as older versions wrote it


def test_what_a_function_gets_is_told_by_its_place(tmp_path: Path) -> None:
    view = """import headwater as hw

@hw.materialized_view(source=["silver.ab", "silver.rows"], keys=["k"])
def lost(one, other):
    return one.join(other, "k", "left_anti")
"""
    _, mark = known(written(tmp_path, {**FILES, "gold/lost.py": view}), "gold.lost", "view")
    turned = view.replace('"silver.ab", "silver.rows"', '"silver.rows", "silver.ab"')
    _, other = known(written(tmp_path, {"gold/lost.py": turned}), "gold.lost", "view")
    assert mark != other


def test_what_a_query_reads_is_told_by_its_place(tmp_path: Path) -> None:
    file = "silver/ab.sql"
    before, mark = known(written(tmp_path, FILES), "silver.ab", "view")
    text = FILES[file].replace("few AS x LEFT JOIN silver.rows AS y", "silver.rows AS x LEFT JOIN few AS y")
    now, other = known(written(tmp_path, {file: text}), "silver.ab", "view")
    assert mark != other
    assert judge(before, now).why == ("reads changed: it is computed anew",)


def test_another_sequence_of_changes_needs_a_rebuild(tmp_path: Path) -> None:
    file = "silver/items.py"
    before, _ = known(written(tmp_path, FILES), "silver.items_changes", "rows")
    text = FILES[file].replace('sequence_by="n"', 'sequence_by="v"')
    now, _ = known(written(tmp_path, {file: text}), "silver.items_changes", "rows")
    assert judge(before, now).why == ("sequence: n → v",)
