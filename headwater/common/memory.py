"""How many heaps this process, and those that it starts, have for what they allocate outside of Arrow.

A run is many threads that pass rows on. glibc gives each of them a heap of its own, up to eight for each
core, and what one has freed the others do not get: of a backlog, a seventh of this process's memory.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

_HEAPS = 2
_M_ARENA_MAX = -8  # mallopt(3)


def share_heaps() -> None:
    """Have few heaps, which all threads share; called before any is started.

    Who sets glibc's own variable of the environment, MALLOC_ARENA_MAX, has the last word.
    """
    if sys.platform != "linux" or "MALLOC_ARENA_MAX" in os.environ:
        return
    os.environ["MALLOC_ARENA_MAX"] = str(_HEAPS)  # of Java, which is started later
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS)
