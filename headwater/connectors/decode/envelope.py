"""What an event of Debezium's says beside the row that changed.

A column that PostgreSQL stores apart (TOAST) is not in its log where a change leaves it alone, unless the
table's replica identity is FULL. Debezium sends a placeholder then: no value is known, so the event is
malformed. See https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-toasted-values
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headwater.connectors.decode.contract import MalformedError

TOMBSTONE = b'{"op":"tombstone"}'  # as what an event without a value is read
_ABSENT = "__debezium_unavailable_value"
_IN_BYTES = base64.b64encode(_ABSENT.encode()).decode()


def check(arrow: pa.Schema, lines: Sequence[bytes], joined: bytes) -> None:
    """Check that events have all values of their rows.

    Args:
        arrow: the declared columns.
        lines: well-formed events.
        joined: the same with a line feed between each two.

    Raises:
        MalformedError: one has a placeholder; the message says of which column, and how it comes to be sent.
    """
    if _ABSENT.encode() not in joined and _IN_BYTES.encode() not in joined:
        return
    names = [field.name for field in arrow.field("after").type]
    for at, line in enumerate(lines):
        try:
            event = json.loads(line, parse_int=str)  # Python reads none of 5,000 digits
        except RecursionError:
            raise MalformedError(f"nested too deep to tell what is missing in row {at}") from None
        row: dict[str, Any] = (event.get("payload") or event).get("after") or {}
        if absent := [name for name in names if _is_absent(row.get(name))]:
            raise MalformedError(
                f"after.{absent[0]} was not sent, as the change left it alone ({_ABSENT}): give the table "
                f"REPLICA IDENTITY FULL in row {at}"
            )


def _is_absent(value: Any) -> bool:
    return value in (_ABSENT, _IN_BYTES, [_ABSENT], [_IN_BYTES])
