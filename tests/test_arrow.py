"""Values of Arrow as Python has them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.common import arrow

UTC_TIMES = pa.timestamp("us", "UTC")
LEAST, MOST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
COLUMNS: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, 127, 0],
    pa.int64(): [2**63 - 1, -(2**63), 2**53 + 1],
    pa.float64(): [0.1, -0.0, float("inf"), 5e-324],
    pa.float32(): [0.5, 1e-40, float("-inf")],
    pa.bool_(): [True, False],
    pa.string(): ["", "ä😀", "a\0b"],
    pa.binary(): [b"", b"\xff"],
    pa.date32(): [LEAST.date(), MOST.date()],
    UTC_TIMES: [LEAST, MOST, datetime(1969, 12, 31, 23, 59, 59, 1, UTC)],
    pa.timestamp("us"): [LEAST.replace(tzinfo=None), datetime(2026, 2, 3)],
    pa.timestamp("us", "Europe/Berlin"): [datetime(2026, 7, 1, tzinfo=UTC)],
    pa.duration("us"): [timedelta(microseconds=-1)],
    pa.decimal128(38, 2): [Decimal("-0.01")],
    pa.list_(pa.int32()): [[1, None], []],
    pa.list_(pa.list_(pa.struct([("at", UTC_TIMES)]))): [[[{"at": LEAST}, None], None], [[]], []],
    pa.map_(pa.string(), pa.int32()): [[("a", 1)]],
    pa.struct([("a", pa.int64()), ("b", pa.struct([("at", UTC_TIMES)]))]): [
        {"a": None, "b": {"at": LEAST}},
        {"a": 1, "b": None},
    ],
    pa.null(): [None],
}


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
def test_rows_are_those_of_pyarrow(nulls: float) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for length in (0, 1, 50):
        named = {}
        for at, (kind, values) in enumerate(COLUMNS.items()):
            drawn = [None if draw.random() < nulls else draw.choice(values) for _ in range(length)]
            named[f"c{at}"] = pa.chunked_array([pa.array(drawn[:7], kind), pa.array(drawn[7:], kind)], kind)
        table = pa.table(named)
        for some in (table, table.slice(3, 20), table.select([])):
            found = arrow.rows(some)
            assert found == some.to_pylist()
            assert [[*map(type, row.values())] for row in found] == [
                [*map(type, row.values())] for row in some.to_pylist()
            ]
        for batch in table.to_batches():
            assert arrow.rows(batch.slice(2)) == batch.slice(2).to_pylist()


def test_a_time_that_python_has_not_is_no_other() -> None:
    for beyond in (2**62, -(2**62)):
        with pytest.raises((ValueError, OverflowError)):
            arrow.values(pa.array([beyond], UTC_TIMES))


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (UTC_TIMES, 253_402_300_800_000_000, "10000-01-01 00:00:00.000000"),
        (pa.timestamp("us"), -62_135_596_800_000_001, "0000-12-31 23:59:59.999999"),
        (pa.timestamp("ms"), 253_402_300_800_000, "10000-01-01 00:00:00.000"),
        (pa.date32(), 2_932_897, "10000-01-01"),
        (pa.date32(), -719_163, "0000-12-31"),
    ],
)
def test_a_time_that_python_has_not_is_found_and_told(kind: pa.DataType, number: int, text: str) -> None:
    least = LEAST.replace(tzinfo=None) if pa.types.is_timestamp(kind) else LEAST.date()
    most = datetime(9999, 12, 31) if pa.types.is_timestamp(kind) else MOST.date()
    fine = pa.array([least, None, most, *[None] * 2], kind)
    wrong = pa.concat_arrays([fine, pa.array([number], pa.int64()).cast(_number(kind)).view(kind)])
    of_struct = pa.StructArray.from_arrays([wrong], ["at"])
    of_list = pa.ListArray.from_arrays([0, 2, 6], wrong)
    of_map = pa.MapArray.from_arrays([0, 1], ["a"], wrong.slice(5))
    for each in (wrong, of_struct, of_list, of_map):
        assert str(beyond(each)).startswith(f"at is {text}, and only times of the years 1 to 9999")
    assert [beyond(each.slice(0, 1)) for each in (wrong, of_struct, of_list)] == [None] * 3
    assert beyond(fine.slice(0, 0)) is None


def beyond(column: pa.Array) -> str | None:
    """What is said of rows whose second column it is."""
    return arrow.beyond(pa.record_batch({"fine": pa.nulls(len(column), pa.date32()), "at": column}))


def _number(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def test_no_other_type_has_such_a_time() -> None:
    for kind, values in COLUMNS.items():
        assert beyond(pa.array([*values, None], kind)) is None
