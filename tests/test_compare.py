"""Rows of two generations are compared: doubles but for what the order of addition makes of them."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.common.diff import Side
from headwater.operations.rebuild.compare import compare


def side(path: Path, *values: float) -> Side:
    table = pa.table({"key": list(range(len(values))), "value": pa.array(values, pa.float64())})
    pq.write_table(table, path)
    return Side([str(path)], table.schema)


@pytest.mark.parametrize(
    "value", [34.61671875, 0.1 + 0.2, 1e300, -2.5, 1234567.125, 0.000000012345, 9.9999999995]
)
def test_the_last_digits_of_a_double_make_no_difference(tmp_path: Path, value: float) -> None:
    near = [value, math.nextafter(value, math.inf), math.nextafter(value, -math.inf)]
    for other in near:
        found = compare("t", side(tmp_path / "a", value), side(tmp_path / "b", other), 3)
        assert not found and found.before == found.after == 1
    found = compare("t", side(tmp_path / "a", value), side(tmp_path / "b", value * (1 + 1e-7)), 3)
    assert (found.gone, found.new) == (1, 1) and found.only_before[0]["key"] == 0


def test_values_that_are_no_numbers_are_equal_to_themselves(tmp_path: Path) -> None:
    values = (math.nan, math.inf, -math.inf, 0.0)
    assert not compare("t", side(tmp_path / "a", *values), side(tmp_path / "b", *values))
    found = compare("t", side(tmp_path / "a", *values), side(tmp_path / "b", *reversed(values)))
    assert (found.gone, found.new) == (4, 4)
