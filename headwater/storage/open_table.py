"""A table that is open for writing: its version, what its flows have done, and how anything is committed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from headwater.common import times
from headwater.errors import CommitError
from headwater.storage import checksums, delta, log, readers
from headwater.storage.checksums import Kept
from headwater.storage.identity import Identity, recorded
from headwater.storage.lake import NO_HOOKS, Place
from headwater.storage.log import DataFile
from headwater.storage.parquet import Files

# Commits between two checkpoints of the log, where no environment says another number: a reader replays those
# since the last one, 0.4 ms each. A checkpoint costs what it holds, so the share is of its size where that is
# large.
CHECKPOINT_EVERY = 20
CHECKPOINT_SHARE = 20
_CLUSTERED = "headwater.cluster_by"
_OVER = "headwater.over"


class OpenTable(Files):
    """One generation of a table, open for writing by this process alone (see `headwater.storage.lease`).

    Raises:
        CommitError: the newest commit is not of this engine, so what the flows have done is not known.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        newest = log.read(place.path, self.version)
        if self.version > 0 and not newest.ours:
            raise CommitError(
                f"{place.name}: something else made version {self.version} ({newest.operation}) of "
                f"{place.path}; only headwater may write there",
                code="WRITTEN_BY_OTHERS",
                table=place.name,
                file=place.path,
                hint=_anew(place),
            )
        self.flows: dict[str, Any] = newest.flows
        self._checkpoint = log.checkpoint(place.path)
        self._mutex = threading.Lock()
        self._checkpointing = threading.Lock()
        self._marked = self._mark()
        self._kept: Kept | None = None
        self._noted: dict[str, Any] | None = None  # of the newest version

    def _is_the_newest(self) -> bool:
        """Whether nobody else has committed to the table, made it anew, or put another in its place."""
        with self._mutex:
            return log.head(self.place.path) == self.version and self._mark() == self._marked

    @property
    def changes_in_place(self) -> bool:
        """Whether its rows change, which the engine keeps a change feed of."""
        return delta.keeps_changes(self._opened)

    def data_files(self) -> tuple[DataFile, ...]:
        """The files of the newest version, in the order in which their rows came."""
        with self._mutex:
            return log.files_of(self.place.path, self._adds)

    def done(self, identity: Identity) -> bool:
        """Whether this batch, or one after it, is in the table."""
        mine = self.flows.get(identity.flow)
        if mine is None or mine["generation"] < identity.generation:
            return False
        return int(mine["sequence"]) >= identity.sequence

    def last(self, flow: str) -> int:
        """The number of the last batch of a flow that is in the table; -1 where there is none."""
        return log.last(self.flows, flow)

    def checkpoint(self, every: int = CHECKPOINT_EVERY) -> None:
        """Write a checkpoint of the log when one is due; meant for another thread than the flow's.

        Args:
            every: how many commits after the last one that is, at least.
        """
        with self._checkpointing:  # maintenance may have found it due, too
            last, size = self._checkpoint
            if self.version - last < max(every, size // CHECKPOINT_SHARE):
                return
            try:
                checksums.checkpoint(self.place.path)
            except (
                CommitError,
                DeltaError,
            ):  # maintenance has written one meanwhile, and removed what came before?
                if log.checkpoint(self.place.path)[0] <= last:
                    raise
            self._checkpoint = log.checkpoint(self.place.path)

    def check(self, files: Iterable[str]) -> None:
        """Check that files of the table are what was written, before what they hold is written anew.

        Args:
            files: their absolute paths.

        Raises:
            DamageError: one is not.
        """
        table = self.place.path
        with self._mutex:
            if self._kept is None:
                self._kept = Kept.read(table, self.version)
            try:
                self._kept.follow(table, self.version)
            except CommitError:  # the log has lost what this lacks
                self._kept = Kept.read(table, self.version)
            known = self._kept.known(os.path.relpath(file, table) for file in files)
        checksums.compare(table, known)

    def cluster(self, by: Sequence[str], over: str = "") -> None:
        """Have merges and compaction put rows together by these columns; by none: by a time, if there is one.

        Args:
            by: the columns.
            over: of a history, the column that says when a row was over, NULL where it still holds: rows that
                do stand apart, as it is these that change.

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        if by or over or self.clustered:
            self._set({_CLUSTERED: json.dumps(by), **({_OVER: over} if over else {})})

    @property
    def over(self) -> str:
        """The column that says when a row was over; "": there is none."""
        return str(self._opened.metadata().configuration.get(_OVER, ""))

    @property
    def clustered(self) -> list[str]:
        """The columns by which rows are put together; none where no one has asked for it."""
        found: list[str] = json.loads(self._opened.metadata().configuration.get(_CLUSTERED, "[]"))
        return found

    def keep(self, kept: timedelta) -> None:
        """Have checkpoints of the log forget the files that have not been the table's for so long.

        By default that is a week, in which a merge each second leaves 600,000 of them, and each commit
        takes the longer the more there are. What goes from the disk is said by the commits themselves
        (`headwater.operations.maintain.clean`), never what someone will read on from. A Spark of others
        refuses to read older versions; ours is told not to (docs/spark.md).

        Raises:
            CommitError: the table is not at the version it was left at: another writer was here.
        """
        self._set({"delta.deletedFileRetentionDuration": f"interval {int(kept.total_seconds())} seconds"})

    def _set(self, wanted: dict[str, str]) -> None:
        def commit(properties: CommitProperties) -> None:
            self._table.alter.set_table_properties(
                wanted,
                raise_if_not_exists=False,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )

        if not wanted.items() <= self._opened.metadata().configuration.items():
            self._commit(commit)

    def _commit(self, commit: Callable[[CommitProperties], None], identity: Identity | None = None) -> int:
        """Have delta-rs commit a batch, or what is none; the new version."""

        def make() -> None:
            self._store.by_others(self.place.path, lambda: commit(properties))
            self._opened.update_incremental()
            self._version = int(self._opened.version())

        with self._mutex:  # maintenance commits, too, and says what has expired
            flows = recorded(self.flows, identity) if identity else self.flows
            properties = CommitProperties(
                custom_metadata=self._says(flows, ()),
                app_transactions=[Transaction(identity.flow, identity.sequence)] if identity else [],
                max_commit_retries=0,
            )
            return self._made(flows, make)

    def _put(
        self,
        operation: str,
        actions: Sequence[Mapping[str, Any]],
        identity: Identity | None = None,
        flows: dict[str, Any] | None = None,
        parameters: Mapping[str, str] | None = None,
        metrics: Mapping[str, int] | None = None,
    ) -> int:
        """Commit actions on files; the new version. The caller has the mutex.

        Args:
            operation: what Delta calls it.
            actions: what the log is to say.
            identity: whose commit it is; None: of no flow.
            flows: what the flows have done after it; by default as before, but for that of the identity.
            parameters, metrics: Delta's, of the operation.
        """
        if flows is None:
            flows = recorded(self.flows, identity) if identity else self.flows
        now, said = times.milliseconds(), self._says(flows, [path for path, _ in checksums.added(actions)])
        of_it = {"operationParameters": parameters, "operationMetrics": metrics}
        about = {name: said for name, said in of_it.items() if said}
        entry: list[Mapping[str, Any]] = [
            {"commitInfo": {"timestamp": now, "operation": operation, **about, **said}}
        ]
        if identity:
            made = {"appId": identity.flow, "version": identity.sequence, "lastUpdated": now}
            entry.append({"txn": made})

        def make() -> bytes:
            written = log.write(self.place.path, self._version + 1, [*entry, *actions])
            self._version += 1
            return written

        return self._made(flows, make)

    def _made(self, flows: dict[str, Any], make: Callable[[], bytes | None]) -> int:
        """Make the next version, whose entry `make` may give, and after which the flows have done this."""
        try:
            entry = make()
            self._marked = self._mark()
        except (CommitFailedError, CommitError) as e:
            raise CommitError(
                f"{self.place.name}: {self.place.path} is past version {self.version}, so something "
                "else wrote to it; only headwater may",
                code="WRITTEN_BY_OTHERS",
                table=self.place.name,
                file=self.place.path,
                hint="find that writer, then run again",
            ) from e
        except Exception:
            self._look_again()
            raise
        self.flows = flows
        self._noted = checksums.note(self.place.path, self.version, entry)
        return self.version

    def _mark(self) -> tuple[int, int]:
        """What tells the commit of this version from another table's: of a file, not of what it says."""
        file = delta.entry(self.place.path, self.version).stat()
        return file.st_ino, file.st_mtime_ns

    def _says(self, flows: Mapping[str, Any], files: Sequence[str]) -> dict[str, str]:
        """What the next commit says beside Delta's own, if it adds these files: what the flows have done by
        then, and checksums."""
        table = self.place.path
        found = {path: checksums.of(table / path) for path in files}
        told = checksums.next_says(table, self.version, found, self._noted)
        return {log.IDENTITY_KEY: json.dumps(flows), checksums.KEY: told}

    def _look_again(self) -> None:
        """See what the table has after an error: what has failed may be there all the same."""
        self._opened = delta.opened(self.place.path)
        self._version = int(self._opened.version())
        self._marked = self._mark()
        self._noted = None
        self.flows = log.read(self.place.path, self.version).flows


def _anew(place: Place) -> str:
    """How a table is begun anew, with all that has read it."""
    way = f"find that writer, then begin the table anew: remove {place.path.parent}, and run it again"
    others = readers.of(place)
    return f"{way}; then build what has read it anew: headwater rebuild {' '.join(others)}" if others else way
