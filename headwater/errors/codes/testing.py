"""What stops a test that uses `headwater.testing`."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Testing = Literal["TEST_ROW_INVALID"]

MEANINGS: dict[Testing, Meaning] = {
    "TEST_ROW_INVALID": Meaning(
        "ProjectError",
        "A test gives a row that its table can't have: another column, or a value of another type.",
        "Write rows as {column: value}, with the table's columns.",
    ),
}
