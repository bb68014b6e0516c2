"""What the log says of files: of those that come, come in place of others, or go as their rows expire.

Paths are encoded as in a URI: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
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
    return [
        *_removed(folder, before, is_change=False),
        *_come(folder, dict.fromkeys(after, order), is_change=False),
    ]


def added(folder: Path, files: Mapping[str, int]) -> list[dict[str, Any]]:
    """That files come with new rows, those of them that have any.

    Args:
        folder: the table's.
        files: {path below it → its order, see `log.DataFile`}.
    """
    return list(_come(folder, files, is_change=True))


def merged(
    folder: Path, before: Sequence[str], after: Mapping[str, int], changes: Sequence[str]
) -> list[dict[str, Any]]:
    """That files hold rows of which some are others than those that other files held.

    Args:
        folder: the table's.
        before: the absolute paths of those that go.
        after: {path below the table of one that comes → its order, see `log.DataFile`}.
        changes: the paths below the table of the change feed's.
    """
    sizes = ((path, store.of(folder).entry(folder / path).size) for path in changes)
    fed = [
        {"cdc": {"path": quote(path), "partitionValues": {}, "size": size, "dataChange": False}}
        for path, size in sizes
    ]
    return [*_removed(folder, before, is_change=True), *_come(folder, after, is_change=True), *fed]


def expired(folder: Path, files: Sequence[str]) -> list[dict[str, Any]]:
    """That files go whose rows have been kept long enough.

    Args:
        folder: the table's.
        files: their absolute paths.
    """
    return _removed(folder, files, is_change=True)


def _come(folder: Path, files: Mapping[str, int], *, is_change: bool) -> Iterator[dict[str, Any]]:
    """That files come, as the log says it."""
    for path, order in files.items():
        rows, text = stats.of(folder / path)
        if rows:
            size = store.of(folder).entry(folder / path).size
            said = {"path": quote(path), "partitionValues": {}, "size": size, "modificationTime": order}
            yield {"add": {**said, "dataChange": is_change, "stats": text}}


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
