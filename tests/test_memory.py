"""The allocators of a process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pyarrow as pa
import pytest

SHOW = """
import ctypes, os, threading
from headwater.common import memory

memory.choose_allocators()
everyone = threading.Barrier(30)

def work():
    kept = [bytes(1000) for _ in range(1000)]
    everyone.wait()

threads = [threading.Thread(target=work) for _ in range(30)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(os.environ["MALLOC_ARENA_MAX"], flush=True)
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_stats"), reason="not glibc")
def test_threads_share_two_heaps_unless_the_environment_says_otherwise() -> None:
    mine = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}

    def heaps(**also: str) -> tuple[str, int]:
        command = [sys.executable, "-c", SHOW]
        done = subprocess.run(command, env=mine | also, capture_output=True, text=True, check=True)
        return done.stdout.strip(), done.stderr.count("Arena ")

    assert heaps() == ("2", 2)
    said, many = heaps(MALLOC_ARENA_MAX="9")
    assert said == "9" and many > 2


FREE = """
import psutil
from headwater.common import memory

between, kept = [], []
for _ in range(60):  # a megabyte each time, and what is kept between all that is freed
    between += [bytes(1000) for _ in range(1000)]
    kept.append(bytes(5000))
del between
had = psutil.Process().memory_info().rss
memory.give_back()
print(had - psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_pages_that_are_free_are_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 1_000_000


POOL = """
from headwater.common import memory

memory.choose_allocators()
import pyarrow as pa

print(pa.default_memory_pool().backend_name)
"""


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="Arrow without jemalloc")
def test_arrow_takes_jemalloc_unless_the_environment_says_otherwise() -> None:
    mine = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}

    def pool(**also: str) -> str:
        command = [sys.executable, "-c", POOL]
        done = subprocess.run(command, env=mine | also, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert pool() == "jemalloc"
    assert pool(ARROW_DEFAULT_MEMORY_POOL="system") == "system"
