"""Sizes of memory and disk, as conf says them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

LEAST_HEAP = 512  # MB
_SIZE = re.compile(r"\d+(?:\.\d+)? ?(?:[KMGT]i?B)", re.IGNORECASE)
_HEAP = re.compile(r"(\d+)([mg])", re.IGNORECASE)


def _size(text: str) -> str:
    if not _SIZE.fullmatch(text):
        raise ValueError(f"{text} is no size; write 512MB or 4GB")
    return text


def _heap(text: str) -> str:
    found = _HEAP.fullmatch(text)
    if not found or int(found[1]) << (10 if found[2] in "gG" else 0) < LEAST_HEAP:
        raise ValueError(f"{text} is no heap that Spark runs in; write 2g or 1500m, {LEAST_HEAP}m at least")
    return text


Size = Annotated[str, AfterValidator(_size)]  # DuckDB's
Heap = Annotated[str, AfterValidator(_heap)]  # Java's
