"""`python -m bench [PART[:NUMBER,…] …]`: figures as JSON, and as a table; by default all but the long ones.

`views:1000000` and `joins:1000000,3000000` say beside how many rows, `freshness:10000` at how many events a
second.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from bench import (
    architectures,
    as_of,
    change_data,
    curve,
    finals,
    first_minute,
    flat,
    freshness,
    growth,
    joins,
    ladder,
    late,
    ledger,
    nexmark,
    peers,
    reading,
    rebuilding,
    soak,
    views,
    windows,
)
from headwater.common import listings

PARTS = {
    "ladder": ladder.measure,
    "freshness": freshness.measure,
    "windows": windows.measure,
    "late": late.measure,
    "demo": first_minute.measure,
}
LONG = {  # so only when asked for: docs/benchmarks.md says how long
    "rebuild": rebuilding.measure,
    "architectures": architectures.measure,
    "flat": flat.measure,
    "views": views.measure,
    "nexmark": nexmark.measure,
    "joins": joins.measure,
    "ledger": ledger.measure,
    "changes": change_data.measure,
    "as_of": as_of.measure,
    "peers": peers.measure,
    "finals": finals.measure,
    "reading": reading.measure,
    "curve": curve.measure,
    "growth": growth.measure,
    "soak": soak.measure,
}


def main() -> None:
    """Measure the parts asked for; all by default."""
    found: dict[str, Any] = {}
    for said in sys.argv[1:] or PARTS:
        name, _, arguments = said.partition(":")
        found[said] = {**PARTS, **LONG}[name](*map(int, filter(None, arguments.split(","))))
    print(json.dumps(found), flush=True)
    table = listings.Listing(["figure", "value"], right=[1], whole=[0])
    for path, value in _flat(found):
        table.row(" · ".join(path), f"{value:,}" if isinstance(value, (int, float)) else str(value))
    listings.show([table], sys.stderr)
    sys.stderr.flush()
    os._exit(0)


def _flat(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each figure with what leads to it."""
    if isinstance(found, dict):
        for name, each in found.items():
            yield from _flat(each, (*path, str(name)))
    else:
        yield path, found


if __name__ == "__main__":  # a process that is spawned reads this module, too
    main()
