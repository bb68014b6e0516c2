"""The memory of this process, and of those that it starts, outside of Java's heap.

A run is many threads that pass rows on. glibc gives each of them a heap of its own, up to eight for each
core, and what one has freed the others do not get: of a backlog, a seventh of this process's memory. What is
free between what is used it keeps, too: after files were put together, 50 to 70 MB.

Arrow's own choice of an allocator is mimalloc, which keeps the pages of each thread that ever read a table,
and gives back those of the thread alone that asks: after half an hour with maintenance 318 MB, of which 2 to
8 were in use. jemalloc gives all back after a second.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

_HEAPS = 2
_M_ARENA_MAX = -8  # mallopt(3)


def choose_allocators() -> None:
    """Have few heaps, which all threads share, and jemalloc for Arrow; called before any thread and pyarrow.

    Who sets glibc's own variable of the environment, MALLOC_ARENA_MAX, or Arrow's, ARROW_DEFAULT_MEMORY_POOL,
    has the last word.
    """
    if sys.platform != "linux":
        return
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")  # Arrow says so where it lacks it
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    os.environ["MALLOC_ARENA_MAX"] = str(_HEAPS)  # of Java, which is started later
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS)


def give_back() -> None:
    """Give pages that are free back to the system; called after work that took many of them."""
    import pyarrow as pa  # which takes a command that needs none of it a fifth of a second

    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
