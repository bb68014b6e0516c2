"""A name that there is not: what is said instead."""

from __future__ import annotations

import pytest

from headwater.common import near

KNOWN = ["bronze.raw", "silver.visits", "gold.counts"]


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("visits", KNOWN, "did you mean silver.visits?"),
        ("silver.visit", KNOWN, "did you mean silver.visits?"),
        ("nothing", KNOWN, "known: bronze.raw, silver.visits, gold.counts"),
        ("nothing", [], "known: none"),
        ("nothing", [f"gold.{at}" for at in range(near.MANY + 1)], "headwater ls lists them"),
    ],
)
def test_what_may_have_been_meant(name: str, known: list[str], said: str) -> None:
    assert near.hint(name, known) == said
