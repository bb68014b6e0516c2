"""Values as JSON has them."""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """The value as JSON has it; see `headwater.query.result.write`."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return format(value, "f")  # str() says 0E-18
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return str(value)


def iso(moment: datetime) -> str:
    """ISO 8601 in seconds, milliseconds or microseconds, whichever suffices; UTC is Z, no zone is none."""
    fraction = moment.microsecond
    precision = "seconds" if not fraction else "microseconds" if fraction % 1000 else "milliseconds"
    if moment.tzinfo is None:
        return moment.isoformat(timespec=precision)
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=precision) + "Z"
