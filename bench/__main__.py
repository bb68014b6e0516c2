"""`python -m bench [ladder|freshness|windows|rebuild|flat]`: the figures as JSON, on standard output."""

from __future__ import annotations

import json
import os
import sys

from bench import flat, freshness, ladder, rebuilding, windows

PARTS = {"ladder": ladder.measure, "freshness": freshness.measure, "windows": windows.measure}
LONG = {"rebuild": rebuilding.measure, "flat": flat.measure}  # 10 and 70 minutes, so only when asked for


def main() -> None:
    """Measure the parts asked for; all by default."""
    wanted = sys.argv[1:] or list(PARTS)
    print(json.dumps({name: {**PARTS, **LONG}[name]() for name in wanted}), flush=True)
    os._exit(0)


main()
