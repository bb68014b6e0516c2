"""Letting go of rows that were kept long enough: whole files, in one commit that says so.

Files of an appended table stand in the order in which their rows came, and each says when that was
(`log.DataFile.order`), so those that go are the first ones. Flows and sinks that have not read them yet read
on in the versions that have them (`headwater.operations.maintain.horizon`); whoever begins later begins
after them. The table's commits say from then on what is gone (`log.expired`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from headwater.runtime import failpoints
from headwater.storage.target import Target

PARTS = 20  # of a retention: rows of two of them are not put into one file


def expire(target: Target, before: datetime) -> int:
    """Let go of the files all of whose rows came before a time (UTC); how many rows that are.

    Raises:
        CommitError: something else writes the table.
    """
    files = target.data_files()
    old = [file for file in files if file.order < before.timestamp() * 1000]
    if not old:
        return 0
    target.expire([file.path for file in old], before)
    failpoints.reach("expired", target.place.name)
    return sum(max(file.rows, 0) for file in old)


def part(retention: timedelta) -> timedelta:
    """The time of which a table's rows may stand in one file."""
    return retention / PARTS
