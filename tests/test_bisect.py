"""A batch that makes its definition fail: the records that do it are found, the rest goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.connectors import decode
from headwater.connectors.decode.contract import Fields
from headwater.errors import NOWHERE, ProjectError
from headwater.flows import bisect
from headwater.flows.rows import FewRows, ManyRows, read
from headwater.flows.work import Work
from headwater.project.bronze import BRONZE
from headwater.project.definitions import Json
from headwater.storage import stored

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def fields() -> Fields:
    return decode.fields(Json("n BIGINT"), NOWHERE)


def bronze(folder: Path, values: list[bytes]) -> str:
    rows = [
        {
            **dict.fromkeys(BRONZE.fieldNames()),
            "value": value,
            "topic": "t",
            "partition": at % 3,
            "offset": at,
            "cluster": "c",
            "ingested_at": NOW,
        }
        for at, value in enumerate(values)
    ]
    pq.write_table(pa.Table.from_pylist(rows, stored.schema(BRONZE)), folder / "in.parquet")
    return str(folder / "in.parquet")


def failing(work: Work, file: str) -> tuple[Exception, pa.Table]:
    """How the batch fails, and because of which records."""
    with pytest.raises(Exception) as failed:  # noqa: PT011
        FewRows(work, read([file], work.columns)).passed()
    return failed.value, bisect.broken(
        work, bisect.parts([file], work.columns), failed.value, threading.Event(), most=bisect.LIMIT
    )


def numbers(count: int, bad: set[int]) -> list[bytes]:
    return [b'{"n": %d}' % (0 if at in bad else at + 1) for at in range(count)]


def in_python(rows: DataFrame) -> DataFrame:
    return rows.withColumn("share", F.udf(lambda n: 1 / n, "double")("n"))


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda rows: rows.withColumn("share", F.lit(1) / F.col("n")), "DIVIDE_BY_ZERO"),
        (in_python, "ZeroDivisionError: division by zero"),
    ],
    ids=["sql", "python"],
)
def test_the_records_are_found_and_held_the_same_few_or_many(
    spark: SparkSession, tmp_path: Path, function: Callable[[DataFrame], DataFrame], says: str
) -> None:
    bad = {0, 7, 8, 39}
    file = bronze(tmp_path, [*numbers(40, bad), b"broken"])
    work = Work(spark, BRONZE, fields(), function)
    _, broken = failing(work, file)
    assert set(broken["offset"].to_pylist()) == bad
    assert all(says in reason and "\n" not in reason for reason in broken["reason"].to_pylist())

    found: list[Any] = []
    for rows in (FewRows(work, read([file], BRONZE), broken), ManyRows(work, [file], 41, broken)):
        passed = rows.passed()
        passed = passed if isinstance(passed, pa.Table) else passed.toArrow()
        counts, held = rows.counts(), rows.held(NOW.isoformat())
        held = held if isinstance(held, pa.Table) else held.toArrow()
        assert (counts.taken, counts.malformed, counts.broken, counts.held) == (41, 1, 4, 5)
        assert counts.failed == {"malformed": 1, "error": 4}
        assert len(passed) == 36
        found.append(sorted(held.to_pylist(), key=lambda row: row["offset"]))
    assert found[0] == found[1]
    assert {row["offset"]: row["rules"] for row in found[0]} == {
        **{at: ["error"] for at in bad},
        40: ["malformed"],
    }
    assert all(row["row"] is None and row["value"] is not None for row in found[0])


@pytest.mark.parametrize(
    ("count", "bad"), [(40, set(range(20))), (10, set(range(7)))], ids=["of a sample", "too many"]
)
def test_a_definition_that_is_wrong_for_many_is_not_the_records_fault(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, bad: set[int]
) -> None:
    monkeypatch.setattr(bisect, "LIMIT", 5)
    monkeypatch.setattr(bisect, "FEW_ENOUGH", 20)
    file = bronze(tmp_path, numbers(count, bad))
    work = Work(interpreted, BRONZE, fields(), lambda rows: rows.withColumn("share", F.lit(1) / F.col("n")))
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO") as failed:
        failing(work, file)
    assert not isinstance(failed.value, ProjectError)


def test_records_that_fail_at_equal_distances_are_found(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bisect, "FEW_ENOUGH", 20)
    bad = {*range(0, 48, 6)}
    file = bronze(tmp_path, numbers(48, bad))
    work = Work(interpreted, BRONZE, fields(), lambda rows: rows.withColumn("share", F.lit(1) / F.col("n")))
    _, broken = failing(work, file)
    assert {*broken["offset"].to_pylist()} == bad


def test_what_fails_without_records_or_only_with_all_of_them_is_raised(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    file = bronze(tmp_path, numbers(4, set()))
    work = Work(interpreted, BRONZE, fields(), lambda rows: rows)
    outage = OSError("no space left on device")
    with pytest.raises(OSError, match="no space left"):
        bisect.broken(work, bisect.parts([file], BRONZE), outage, threading.Event(), most=bisect.LIMIT)
    always = Work(
        interpreted,
        BRONZE,
        fields(),
        lambda rows: rows.union(
            rows.sparkSession.sql("SELECT 1/0 AS n, '' AS _rescued, NULL AS _source, NULL AS ingested_at")
        ),
    )
    with pytest.raises(OSError, match="no space left"):
        bisect.broken(always, bisect.parts([file], BRONZE), outage, threading.Event(), most=bisect.LIMIT)


def test_of_a_search_without_a_bound_that_takes_too_long_what_was_tried_is_known(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [14]

    def few(work: Work, rows: pa.Table) -> FewRows:
        left[0] -= 1
        return FewRows(work, rows)

    monkeypatch.setattr(bisect, "FewRows", few)
    monkeypatch.setattr(bisect, "time", SimpleNamespace(monotonic=lambda: 0.0 if left[0] > 0 else 1e9))
    file = bronze(tmp_path, numbers(64, {3, 9, 40, 50}))
    work = Work(interpreted, BRONZE, fields(), lambda rows: rows.withColumn("share", F.lit(1) / F.col("n")))
    error, stop = ValueError("how the batch failed"), threading.Event()
    found = bisect.broken(work, bisect.parts([file], BRONZE), error, stop, most=None)
    reasons = dict(zip(found["offset"].to_pylist(), found["reason"].to_pylist(), strict=True))
    tried = {at for at, why in reasons.items() if "not tried" not in why}
    assert tried and tried < {3, 9, 40, 50}
    first = min(reasons.keys() - tried)
    assert reasons.keys() == tried | {*range(first, 64)} and tried == {
        at for at in (3, 9, 40, 50) if at < first
    }


def test_a_large_batch_may_have_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [bisect.most(rows) for rows in (1, 20_000, 500_000)] == [20, 20, 500]


def test_a_search_is_short_bounded_and_says_how_far_it_is(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, told = list[int](), list[str]()

    def few(work: Work, rows: pa.Table) -> FewRows:
        tries.append(len(rows))
        return FewRows(work, rows)

    file = bronze(tmp_path, numbers(400, {3, 302}))
    work = Work(interpreted, BRONZE, fields(), lambda rows: rows.withColumn("share", F.lit(1) / F.col("n")))
    error, stop = ValueError("how the batch failed"), threading.Event()
    monkeypatch.setattr(bisect, "FEW", 50)
    monkeypatch.setattr(bisect, "FewRows", few)
    monkeypatch.setattr(bisect, "TELLING", 0.0)
    found = bisect.broken(
        work, bisect.parts([file], BRONZE), error, stop, most=bisect.LIMIT, tell=told.append
    )
    assert found["offset"].to_pylist() == [3, 302]
    assert (
        len(tries) <= 40
    )  # an empty batch, a sample of the part that fails first, 8 parts, twice 6 halvings
    assert "1 found, 50 records done with" in told[-1] or "2 found" in told[-1]

    monkeypatch.setattr(bisect, "WITHIN", 0.0)
    with pytest.raises(ValueError, match="how the batch failed"):
        bisect.broken(work, bisect.parts([file], BRONZE), error, stop, most=bisect.LIMIT)
    full = OSError(28, "No space left on device")
    tries.clear()
    with pytest.raises(OSError, match="No space"):
        bisect.broken(work, bisect.parts([file], BRONZE), full, stop, most=bisect.LIMIT)
    assert tries == []
