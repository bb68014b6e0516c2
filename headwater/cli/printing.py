"""What several commands print alike: JSON, and times."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any


def print_json(value: Any) -> None:
    """Print a value as JSON; times in ISO 8601, UTC."""
    from headwater.query.result import plain

    json.dump(plain(value), sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def when(at: datetime) -> str:
    """A time in UTC, to the second."""
    return at.strftime("%Y-%m-%d %H:%M:%SZ")
