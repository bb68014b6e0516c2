"""What stops a test that uses `headwater.testing`."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Testing = Literal["TEST_ROW_INVALID", "TEST_WITHOUT_BROKER"]

MEANINGS: dict[Testing, Meaning] = {
    "TEST_ROW_INVALID": Meaning(
        "ProjectError",
        "A test gives a row that its table can't have: another column, or a value of another type.",
        "Write rows as {column: value}, with the table's columns.",
    ),
    "TEST_WITHOUT_BROKER": Meaning(
        "ProjectError",
        "A test steps what reads or writes Kafka: the table of a topic, an alert or a sink.",
        "Send records with `send`; test a sink or an alert by the table that it reads.",
    ),
}
