"""How much memory this process, and those that it starts, keep of what they do not need any more.

A run is many threads that pass rows on. glibc gives each of them a heap of its own, up to eight for each
core, and what one has freed the others do not get; Arrow's allocator, mimalloc, gives pages back only when
the thread that had them comes by again, which may be never.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

_HEAPS = 2  # of glibc
_M_ARENA_MAX = -8  # mallopt(3)


def spare() -> None:
    """Keep little; called before any thread is started, and before Arrow is loaded.

    Who sets glibc's or mimalloc's own variables of the environment has the last word.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")
    if sys.platform != "linux" or "MALLOC_ARENA_MAX" in os.environ:
        return
    os.environ["MALLOC_ARENA_MAX"] = str(_HEAPS)  # of Java, which is started later
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS)
