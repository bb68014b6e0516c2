"""What the log says where no batch is committed: of files in place of others, and of rows that expire."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headwater.common import times
from headwater.storage import stats, store


def replaced(folder: Path, before: Sequence[str], after: Sequence[str], order: int) -> list[dict[str, Any]]:
    """That files hold the rows which others held.

    Args:
        folder: the table's.
        before: the absolute paths of those that go.
        after: the paths below the table of those that come.
        order: see `log.DataFile`.
    """
    come = [
        {
            "path": path,
            "partitionValues": {},
            "size": store.of(folder).entry(folder / path).size,
            "modificationTime": order,
            "dataChange": False,
            "stats": stats.of(folder / path)[1],
        }
        for path in after
    ]
    return [*_removed(folder, before, is_change=False), *({"add": each} for each in come)]


def expired(folder: Path, files: Sequence[str]) -> list[dict[str, Any]]:
    """That files go whose rows have been kept long enough.

    Args:
        folder: the table's.
        files: their absolute paths.
    """
    return _removed(folder, files, is_change=True)


def _removed(folder: Path, paths: Sequence[str], *, is_change: bool) -> list[dict[str, Any]]:
    """That files go, as the log says it."""
    now = times.milliseconds()
    return [
        {
            "remove": {
                "path": quote(os.path.relpath(path, folder)),
                "deletionTimestamp": now,
                "dataChange": is_change,
                "partitionValues": {},
                "size": store.of(folder).entry(Path(path)).size,
            }
        }
        for path in paths
    ]
