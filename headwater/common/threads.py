"""Parts of one computation, side by side where cores are free: what works on Arrow's columns holds no lock
of Python's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headwater.common import database

_Part = TypeVar("_Part")
_Made = TypeVar("_Made")


def each(function: Callable[[_Part], _Made], parts: Sequence[_Part]) -> list[_Made]:
    """What a function makes of each part, in their order, by as many threads as a database may have.

    Raises:
        Exception: what the function raises of the first part of which it raises something.
    """
    if len(parts) <= 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(min(len(parts), database.limits().threads)) as pool:
        return list(pool.map(function, parts))
