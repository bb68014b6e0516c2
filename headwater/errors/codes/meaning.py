"""What a code says."""

from __future__ import annotations

from typing import NamedTuple


class Meaning(NamedTuple):
    """What a code says.

    Attributes:
        error: the class of `headwater.errors` that has it; several, joined by " or ".
        cause: what is wrong, in one sentence.
        way_out: what to do about it.
    """

    error: str
    cause: str
    way_out: str
