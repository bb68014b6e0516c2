"""Random projects over random records, compared with what Spark and DuckDB make of the same records."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import quick  # noqa: F401

from fuzz import kept, make
from fuzz.processes import run
from fuzz.shrink import shrunk

KEPT = Path(__file__).parent.parent / "fuzz_cases"


def main() -> int:
    """Run cases and say what came of them; how many failed."""
    arguments = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    arguments.add_argument("--seed", type=int, help="of the first case; the next ones follow it")
    arguments.add_argument("--cases", type=int, help="so many; without it until --minutes are over")
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--shrink", type=float, default=3, help="minutes to make one that fails small")
    arguments.add_argument("--case", type=Path, help="a file of one, to do that again")
    arguments.add_argument("--keep", type=Path, default=KEPT, help="the folder of those that fail")
    given = arguments.parse_args()
    if given.case:
        print(run(kept.read(given.case)))
        return 0
    first = random.randrange(2**32) if given.seed is None else given.seed
    began, counts, failed, done = time.monotonic(), Counter[str](), list[Path](), 0
    while done < given.cases if given.cases else time.monotonic() - began < 60 * given.minutes:
        case = make.case(first + done)
        done += 1
        try:
            counts += run(case)
        except Exception as e:
            print(f"seed {case['seed']} fails: {type(e).__name__}: {e}", flush=True)
            if not isinstance(e, AssertionError):
                traceback.print_exc()
            small, why = shrunk(case, e, 60 * given.shrink)
            failed.append(kept.write(small, why, given.keep))
            print(f"  made small: {failed[-1]}: {why}", flush=True)
        if done % 20 == 0:
            print(f"{done} cases, {len(failed)} failed, {time.monotonic() - began:.0f} s", flush=True)
    for what, count in sorted(counts.items()):
        print(f"{count:8} {what}")
    print(f"{done} cases from seed {first} in {time.monotonic() - began:.0f} s: {len(failed)} failed")
    return len(failed)


if __name__ == "__main__":
    status = min(main(), 1)
    sys.stdout.flush()
    os._exit(status)
