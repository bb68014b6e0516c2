"""`python -m tests.simulator SEED [COUNT]`: the schedules of so many seeds; of one alone, its steps."""

from __future__ import annotations

import argparse
import sys
import time

from .schedule import Wrong, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--first", action="store_true", help="end with the first that goes wrong")
    asked = parser.parse_args()
    wrong, began, ran = 0, time.process_time(), 0
    for seed in range(asked.seed, asked.seed + asked.count):
        ran += 1
        try:
            world = run(seed)
        except Wrong as e:
            wrong += 1
            print(e, file=sys.stderr)
            if asked.first:
                break
            continue
        if asked.count == 1:
            print("\n".join(world.trace()))
    spent = time.process_time() - began
    print(f"{ran} schedules, {wrong} wrong, {spent:.1f} s of CPU, {1000 * spent / ran:.0f} ms each")
    return 1 if wrong else 0


sys.exit(main())
