"""A Delta table at a path: opened, and its log read entry by entry; what is gone or damaged is named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from headwater.errors import CommitError, DamageError
from headwater.errors.causes import first_line
from headwater.storage import store

LOG = "_delta_log"
_CHECKPOINT = ".checkpoint.parquet"
LAST_CHECKPOINT = "_last_checkpoint"
_GENERATION = re.compile(r"g\d{4,}")


def opened(table: Path, version: int | None = None, tries: int = 5) -> DeltaTable:
    """A Delta table as it was at `version`; by default the newest.

    An entry of its log that was listed may be gone when it is read, as maintenance has made a checkpoint of
    it: then it is opened again, so often at most.

    Raises:
        CommitError: it is gone, the version is, or something of its log can't be read.
    """
    try:
        found = DeltaTable(table, version=version)
    except TableNotFoundError:
        raise _gone(table, version) from None
    except DeltaError as e:
        went = "not found" in str(e).lower() and tries > 0
        _mend(table, version, first_line(e), went=went)
        return opened(table, version, tries - went)
    check(table, int(found.version()))
    return found


def check(table: Path, version: int) -> None:
    """Check the entries that a reader of a version replays.

    Raises:
        CommitError: one is empty, which readers take for a version without changes: its rows would miss.
        FileNotFoundError: one went just now.
    """
    for at in _replayed(table, version):
        if not store.of(table).entry(entry(table, at)).size:
            actions(table, at)


def files(table: Path, version: int | None = None) -> list[str]:
    """The absolute paths of the files that a version of a table has; by default the newest.

    Raises:
        CommitError: it is gone, or something of its log can't be read.
    """
    return [unquote(path) for path in opened(table, version).file_uris()]


def located(table: Path, path: str) -> str:
    """The absolute path of a file that the log calls so: URL-encoded, below the table.

    A batch asks it of each file of its tables, of which there are thousands: to join paths takes ten times as
    long.
    """
    return f"{table}/{unquote(path)}"


def adds(found: DeltaTable) -> pa.Table:
    """The files of a table that is open, as delta-rs tells them: `path` (URL-encoded, below the table),
    `size_bytes`, `modification_time` (milliseconds of the epoch), and as far as they were recorded
    `num_records` and of each column `min.`, `max.` and `null_count.`."""
    return pa.table(found.get_add_actions(flatten=True))


def keeps_changes(found: DeltaTable) -> bool:
    """Whether rows of a table change in place, which the engine keeps a change feed of."""
    return found.metadata().configuration.get("delta.enableChangeDataFeed") == "true"


@lru_cache(maxsize=1 << 12)  # a batch asks for the same 50 times
def entry(table: Path, version: int) -> Path:
    """Where the log has the commit of a version."""
    return table.joinpath(LOG, f"{version:020d}.json")


def versions(table: Path) -> Iterator[int]:
    """The versions whose commits are in the log, in no order."""
    for name in store.of(table).names(table / LOG):
        if len(name) == 25 and name.endswith(".json"):
            yield int(name[:20])


def checkpoint(table: Path, version: int) -> Path:
    """Where the log has a checkpoint of a version, if it has one."""
    return entry(table, version).with_suffix(_CHECKPOINT)


def actions(table: Path, version: int) -> list[dict[str, Any]]:
    """What the commit of a version says.

    Raises:
        CommitError: it is gone, or can't be read; or the table is gone.
    """
    file = entry(table, version)
    try:
        found = parsed(store.of(file).get(file))
    except FileNotFoundError:
        raise _gone(table, version) from None
    except ValueError as e:
        raise damaged(table, file, first_line(e)) from None
    if not found:
        raise damaged(table, file, "it is empty")
    return found


def parsed(content: bytes) -> list[dict[str, Any]]:
    """The actions that an entry of a log holds.

    Raises:
        ValueError: it is not JSON, line by line.
    """
    return [json.loads(line) for line in content.splitlines() if line]


def name_of(table: Path) -> str:
    """The name of the table of which a generation lies at the path; of any other its folder's."""
    above = table.parent
    return f"{above.parent.name}.{above.name}" if _GENERATION.fullmatch(table.name) else table.name


def _replayed(table: Path, version: int | None) -> Iterator[int]:
    """The versions that a reader of one (by default the newest) replays: those since a checkpoint."""
    if version is None:
        version = max(versions(table), default=-1)
    exists = store.of(table).exists
    while exists(entry(table, version)):
        yield version
        if exists(checkpoint(table, version)):
            return
        version -= 1


def _mend(table: Path, version: int | None, why: str, *, went: bool) -> None:
    """Remove a checkpoint that can't be read: it only says again what the entries before it do.

    Args:
        table: the table.
        version: of it.
        why: why it can't be opened.
        went: whether that may be as an entry went which a checkpoint has by now.

    Raises:
        CommitError: that is not what is wrong, or these entries are not there any more.
    """
    oldest = 0
    for oldest in _replayed(table, version):
        actions(table, oldest)
    whole, hint = checkpoint(table, oldest), table / LOG / LAST_CHECKPOINT
    there = store.of(table)
    if _is_whole(whole) and went:
        return
    if _is_whole(whole) or not (there.exists(whole) or there.exists(hint)):
        raise damaged(table, table / LOG, why)
    for at in range(oldest):
        if not there.exists(entry(table, at)):
            if version is not None and any(
                _is_whole(checkpoint(table, v)) for v in versions(table) if v > version
            ):
                raise _shortened(table, version)  # by maintenance, which is at it
            lost = whole if there.exists(whole) else entry(table, oldest - 1)
            raise damaged(table, lost, "it is no Parquet" if lost == whole else "it is gone")
    there.delete(whole)
    there.delete(hint)


def _is_whole(checkpoint: Path) -> bool:
    """Whether the footer of a Parquet file can be read."""
    try:
        pq.read_metadata(checkpoint)
    except (OSError, pa.ArrowException):
        return False
    return True


def _gone(table: Path, version: int | None) -> CommitError:
    """A version is not there: the log was cleaned past it, or the table is gone."""
    if version is not None and next(versions(table), None) is not None:
        return _shortened(table, version)
    name = name_of(table)
    return CommitError(
        f"{name}: there is no Delta table at {table}, where the catalog has it",
        code="TABLE_MISSING",
        table=name,
        file=table,
        hint=_way_out(name),
    )


def _shortened(table: Path, version: int) -> CommitError:
    file = entry(table, version)
    return CommitError(
        f"{file}: version {version} is gone from the log",
        code="LOG_SHORTENED",
        table=name_of(table),
        file=file,
        hint="ask for a newer one; a flow that was to read on from there: rebuild its table",
    )


def damaged(table: Path, file: Path, why: str) -> CommitError:
    """That a file of a table's log can't be read, and what to do."""
    name = name_of(table)
    return CommitError(
        f"{name}: {file} can't be read: {why}",
        code="LOG_DAMAGED",
        table=name,
        file=file,
        hint=_way_out(name),
    )


def damaged_file(file: Path, why: str) -> DamageError:
    """That a data file of a table is not what was written, and who says what to do."""
    table = next((above for above in file.parents if (above / LOG).is_dir()), file.parent)
    name = name_of(table)
    return DamageError(
        f"{name}: {file} {why}",
        code="FILE_DAMAGED",
        table=name,
        file=file,
        hint=f"headwater verify {name} says what is lost, and the way back",
    )


def _way_out(name: str) -> str:
    layer, _, rest = name.partition(".")
    if not rest or layer in ("bronze", "ops"):  # nothing else has its rows
        return "put it back from a copy"
    return f"put it back from a copy, or make the table anew: headwater rebuild {name}"
