"""Benchmarks: `python -m bench` prints JSON. They measure; they never fail for being slow."""

from headwater.common import memory

memory.choose_allocators()  # as the program does
