"""Benchmarks: `python -m bench` prints JSON. They measure; they never fail for being slow."""
