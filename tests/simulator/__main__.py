"""`python -m tests.simulator SEED [COUNT]`: the schedules of so many seeds; of one alone, its steps."""

from __future__ import annotations

import sys
import time

from .schedule import Wrong, run


def main() -> int:
    seed, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    wrong, began = 0, time.process_time()
    for each in range(seed, seed + count):
        try:
            trace = run(each)
        except Wrong as e:
            wrong += 1
            print(e, file=sys.stderr)
            continue
        if count == 1:
            print("\n".join(trace))
    spent = time.process_time() - began
    print(f"{count} schedules, {wrong} wrong, {spent:.1f} s of CPU, {1000 * spent / count:.0f} ms each")
    return 1 if wrong else 0


sys.exit(main())
