"""What the log says where no batch is committed: files in place of others, and rows that expire."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headwater.common import times
from headwater.storage import log, stats, store


def replaced(
    folder: Path,
    before: Sequence[str],
    after: Sequence[str],
    order: int,
    operation: str,
    flows: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """That files hold the rows which others held.

    Args:
        folder: the table's.
        before: the absolute paths of those that go.
        after: the paths below the table of those that come.
        order: see `log.DataFile`.
        operation: what Delta calls it.
        flows: what the table's flows have done.
    """
    now = times.milliseconds()
    info = {"timestamp": now, "operation": operation, log.IDENTITY_KEY: json.dumps(flows)}
    gone = [_removed(folder, path, now, is_change=False) for path in before]
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
    return [{"commitInfo": info}, *gone, *({"add": each} for each in come)]


def expired(
    folder: Path, files: Sequence[str], before: datetime, flows: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """That files go whose rows have been kept long enough, and what the table's flows have done then.

    Args:
        folder: the table's.
        files: their absolute paths.
        before: when their rows came: before this time (UTC).
        flows: what the table's flows have done.
    """
    now, text = times.milliseconds(), before.isoformat(timespec="milliseconds")
    flows = {name: {**flow, "expired": text} for name, flow in flows.items()}
    info = {
        "timestamp": now,
        "operation": log.EXPIRY,
        "operationParameters": {"predicate": json.dumps([f"committed before {text}"])},
        log.IDENTITY_KEY: json.dumps(flows),
    }
    return [{"commitInfo": info}, *(_removed(folder, path, now, is_change=True) for path in files)], flows


def _removed(folder: Path, path: str, now: int, *, is_change: bool) -> dict[str, Any]:
    """That a file goes, as the log says it."""
    gone = {
        "path": quote(os.path.relpath(path, folder)),
        "deletionTimestamp": now,
        "dataChange": is_change,
        "partitionValues": {},
        "size": store.of(folder).entry(Path(path)).size,
    }
    return {"remove": gone}
