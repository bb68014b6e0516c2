"""What became of a batch's rows at the gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tally:
    """What became of the rows that a function returned.

    Attributes:
        rows: how many there were.
        dropped, quarantined: how many the gate held back.
        failed: {rule → rows that fail it}, those of one row or more.
        sample: a row that fails a rule whose action is `fail`, as JSON; None where there is none.
        measured: {rule → the values of its metrics}, of rules about many rows at once.
    """

    rows: int = 0
    dropped: int = 0
    quarantined: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    sample: str | None = None
    measured: dict[str, tuple[Any, ...]] = field(default_factory=dict)
