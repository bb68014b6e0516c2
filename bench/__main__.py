"""`python -m bench [PART …]`: the figures as JSON; by default all but the long ones."""

from __future__ import annotations

import json
import os
import sys

from bench import (
    architectures,
    change_data,
    first_minute,
    flat,
    freshness,
    joins,
    ladder,
    late,
    ledger,
    nexmark,
    rebuilding,
    views,
    windows,
)

PARTS = {
    "ladder": ladder.measure,
    "freshness": freshness.measure,
    "windows": windows.measure,
    "late": late.measure,
    "demo": first_minute.measure,
}
LONG = {  # 10, 12, 70, 5, 10, 5, 3 and 5 minutes, so only when asked for
    "rebuild": rebuilding.measure,
    "architectures": architectures.measure,
    "flat": flat.measure,
    "views": views.measure,
    "nexmark": nexmark.measure,
    "joins": joins.measure,
    "ledger": ledger.measure,
    "changes": change_data.measure,
}


def main() -> None:
    """Measure the parts asked for; all by default."""
    wanted = sys.argv[1:] or list(PARTS)
    print(json.dumps({name: {**PARTS, **LONG}[name]() for name in wanted}), flush=True)
    os._exit(0)


main()
