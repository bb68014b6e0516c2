"""Tables that follow from rows which are delivered whole: what a delivery lacks is deleted by it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from raising import raises_code
from test_change_data import FILES
from test_final import seeded

from headwater.errors.codes import Code
from headwater.flows import computed
from headwater.operations.rebuild.reconcile import reconcile
from headwater.testing import Project

FROM = "FROM SNAPSHOT silver.changes KEYS (id) SEQUENCE BY seq"
TABLES = {
    "now": f"{FROM} COLUMNS id, a, b",
    "history": f"{FROM} COLUMNS id, a, b STORED AS SCD TYPE 2",
    "tracked": f"{FROM} COLUMNS * EXCEPT (op, seq, of) STORED AS SCD TYPE 2 TRACK HISTORY ON a",
}
DEFINITIONS = {
    f"gold/{name}.sql": f"CREATE STREAMING TABLE {name} FLOW AUTO CDC {said}" for name, said in TABLES.items()
}
PYTHON = """import headwater as hw

OF = {"source": "silver.changes", "keys": ["id"], "sequence_by": "seq"}
now = hw.auto_cdc_from_snapshot(**OF, column_list=["id", "a", "b"])
history = hw.auto_cdc_from_snapshot(**OF, column_list=["id", "a", "b"], scd=2)
tracked = hw.auto_cdc_from_snapshot(
    **OF, except_column_list=["op", "seq", "of"], scd=2, track_history_column_list=["a"]
)
"""
Rows = dict[int, tuple[int | None, str]]  # key → the rest of its row


def wanted(deliveries: Mapping[int, Rows], tracked: int) -> set[tuple[Any, ...]]:
    """Each version that a row ever had, where a change of its first `tracked` columns begins another."""
    found, order = [], sorted(deliveries)
    for key in {key for rows in deliveries.values() for key in rows}:
        open_: list[Any] | None = None
        for at in order:
            row = deliveries[at].get(key)
            if open_ is not None and row is not None and row[:tracked] == open_[0][:tracked]:
                open_[0] = row
                continue
            if open_ is not None:
                found.append((key, *open_[0], open_[1], at))
            open_ = None if row is None else [row, at]
        if open_ is not None:
            found.append((key, *open_[0], open_[1], None))
    return {*found}


def check(project: Project, deliveries: Mapping[int, Rows]) -> None:
    newest = deliveries[max(deliveries)]
    assert sorted(project.rows("gold.now", "id, a, b")) == sorted((key, *row) for key, row in newest.items())
    for name, tracked in (("history", 2), ("tracked", 1)):
        rows = project.rows(f"gold.{name}", "id, a, b, __START_AT, __END_AT")
        assert len(rows) == len({*rows}) and {*rows} == wanted(deliveries, tracked), name


def records(seq: int, rows: Rows) -> list[dict[str, Any]]:
    return [{"id": key, "seq": seq, "a": a, "b": b} for key, (a, b) in rows.items()]


def drawn(draw: random.Random) -> Rows:
    keys = draw.sample(range(8), draw.randint(1, 7))
    return {key: (draw.choice([1, 2, 3]), draw.choice("xy")) for key in keys}


@pytest.mark.parametrize("way", ["few", "whole"])
@pytest.mark.parametrize("files", [DEFINITIONS, {"gold/snapshots.py": PYTHON}], ids=["sql", "python"])
def test_deliveries_in_any_order_whole_or_in_parts_or_twice(
    interpreted: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    way: str,
) -> None:
    draw = seeded(random.randrange(2**32))
    monkeypatch.setattr(computed, "WHOLE", -1 if way == "whole" else 10_000_000)
    project = Project({**FILES, **files}, tmp_path, spark=interpreted)
    order, came = draw.sample(range(10), 6), dict[int, Rows]()
    for seq in order:
        rows = drawn(draw)
        sent = records(seq, rows)
        draw.shuffle(sent)
        if draw.random() < 0.4:  # in two parts
            first = sent[: len(sent) // 2 or 1]
            project.send("changes", first)
            project.step()
            check(project, {**came, seq: {each["id"]: rows[each["id"]] for each in first}})
            sent = sent[len(first) :] + sent[:1]
        came[seq] = rows
        project.send("changes", sent)
        project.step()
        check(project, came)
    again = draw.choice(order)
    project.send("changes", records(again, came[again]))
    project.step()
    assert all(project.batches(f"gold.{name}")[-1].rows_out == 0 for name in TABLES)
    project.rebuild("silver.changes")
    check(project, came)
    for found in reconcile(project.definitions, [f"gold.{name}" for name in TABLES]):
        assert found.same, found


WRONG: list[tuple[str, Code]] = [
    (
        f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM} APPLY AS DELETE WHEN op = 'D'",
        "STATEMENT_NOT_SUPPORTED",
    ),
    (
        f"CREATE STREAMING TABLE t FLOW AUTO CDC {FROM.replace('SEQUENCE BY seq', '')}",
        "STATEMENT_NOT_SUPPORTED",
    ),
    (
        f"CREATE STREAMING TABLE t; CREATE FLOW f AS AUTO CDC INTO t {FROM}; "
        f"CREATE FLOW g AS AUTO CDC INTO t {FROM}",
        "FLOWS_DIFFER",
    ),
    (
        f"CREATE STREAMING TABLE t; CREATE FLOW f AS AUTO CDC INTO t {FROM}; "
        f"CREATE FLOW g AS AUTO CDC INTO t {FROM.replace('SNAPSHOT', 'STREAM')}",
        "FLOWS_DIFFER",
    ),
]


@pytest.mark.parametrize(("text", "code"), WRONG)
def test_what_can_not_be_is_refused(tmp_path: Path, text: str, code: Code) -> None:
    with raises_code(code, match=r"gold/t\.sql"):
        assert Project({**FILES, "gold/t.sql": text}, tmp_path).definitions
