"""A Delta table of someone else's as an archive: the Parquet files of its newest version, in their order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headwater.errors import CommitError, LakeError, ProjectError
from headwater.errors.causes import first_line
from headwater.storage import delta, log

_UNLIKE_FILES = {  # features by which a table's rows are not simply those of its files
    "deletionVectors": "rows of its files are deleted (purge them: REORG TABLE … APPLY (PURGE))",
    "columnMapping": "its files name columns otherwise than it does",
}


def is_table(path: Path) -> bool:
    """Whether there is a Delta table at the path: one that is being made has no version yet."""
    return (path / delta.LOG).is_dir() and log.exists(path)


def files(table: Path) -> list[str]:
    """The absolute paths of the files that the newest version has, in the order in which they came.

    Raises:
        ProjectError: the table's rows are not simply those of its files.
        LakeError: it can't be read.
    """
    found = _opened(table)
    features = {*(found.protocol().reader_features or ())}
    if found.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    unlike = [why for feature, why in _UNLIKE_FILES.items() if feature in features]
    if found.metadata().partition_columns:
        listed = ", ".join(found.metadata().partition_columns)
        unlike.append(f"its files lack the columns that it is partitioned by ({listed})")
    if unlike:
        raise ProjectError(
            f"{table}: {'; '.join(unlike)}",
            code="NOT_ADOPTABLE",
            file=table,
            hint="write its rows to a table of their own and take that one",
        )
    return [os.path.abspath(file.path) for file in log.files_of(table, delta.adds(found))]


def _opened(table: Path, tries: int = 3) -> DeltaTable:
    """The table, of whose log nothing is mended: it is not ours.

    Raises:
        LakeError: it can't be read, however often it is tried: its engine may be removing old entries.
    """
    try:
        found = DeltaTable(table)
        delta.check(table, int(found.version()))
        return found
    except (DeltaError, CommitError, FileNotFoundError) as e:
        if tries > 1:
            return _opened(table, tries - 1)
        raise LakeError(
            f"{table} can't be read: {first_line(e)}",
            code="ADOPTED_TABLE_UNREADABLE",
            file=table,
            hint="see that it can be read elsewhere, then go on: nothing of it is passed over",
        ) from e


def check_as_taken(table: Path, files: Iterable[str], taken: Iterable[str]) -> None:
    """Check that files which were taken before still are the table's.

    Args:
        table: its path.
        files: those that it has now.
        taken: those that were taken.

    Raises:
        LakeError: it was rewritten, so that files which are new hold rows that were taken.
    """
    there = {*files}
    gone = [path for path in taken if path not in there]
    if gone:
        raise LakeError(
            f"{table} was rewritten after {len(gone)} of its files were taken ({gone[0]}), so rows in new "
            "ones may be here already; nothing is taken",
            code="ADOPTED_TABLE_REWRITTEN",
            file=table,
            hint="take a table that is only appended to",
        )


def check_there(table: Path, missing: Sequence[str]) -> None:
    """Check that each file of a table is where its log says.

    Args:
        table: its path.
        missing: those that are not.

    Raises:
        LakeError: there are some, as in a copy that is not whole, or of a clone whose files lie elsewhere.
    """
    if missing:
        raise LakeError(
            f"{table} can't be read: {len(missing)} of the files in its log are not there ({missing[0]})",
            code="ADOPTED_TABLE_UNREADABLE",
            file=table,
            hint="copy it whole, then go on: nothing of it is passed over",
        )
