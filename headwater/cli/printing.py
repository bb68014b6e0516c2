"""What several commands print alike: JSON, and times."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any


def print_json(value: Any) -> None:
    """Print a value as JSON; times in ISO 8601, UTC."""
    json.dump(value, sys.stdout, default=_plain, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def when(at: datetime, between: str = " ") -> str:
    """A time in UTC, to the second."""
    return at.strftime(f"%Y-%m-%d{between}%H:%M:%SZ")


def _plain(value: Any) -> str:
    return when(value, "T") if isinstance(value, datetime) else str(value)
