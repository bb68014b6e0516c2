"""Files → bronze: a folder is looked at again and again, each file in it taken once; see `flows.intake`."""

from __future__ import annotations

import time

from headwater.common.progress import Batch
from headwater.connectors.files.ledger import ledger_name
from headwater.connectors.files.source import source
from headwater.flows.context import Context
from headwater.flows.intake import Bounds, Intake
from headwater.flows.reading import interval
from headwater.planner.changes import accept
from headwater.project.definitions import Files
from headwater.storage.target import Target


class FilesFlow:
    """The flow of one bronze table that files feed."""

    def __init__(self, context: Context, files: Files) -> None:
        self.name = files.name
        self._context = context
        self._files = files
        project, lake = context.project, context.lake
        analysed = context.tables[files.name]
        accept(project, lake, files.name, analysed)
        table = Target.shared(lake.create(files.name, analysed.stored, comment=files.comment, properties={}))
        self._source = source(files.pattern, project.root, project.conf)
        bounds = Bounds(
            files.limits.max_rows_per_batch or project.conf.max_rows_per_batch,
            project.conf.max_bytes_per_batch,
        )
        fingerprint = analysed.fingerprint
        self._intake = Intake(self.name, files.topic, table, lake, bounds, fingerprint, context.now)
        self.committer = self._intake.committer
        trigger = context.trigger or files.limits.trigger or project.conf.trigger
        self._every = interval(trigger) / 1000

    def run(self) -> None:
        """Take what arrives until the run ends; with `once`, what is there now.

        Raises:
            CommitError: what was taken is not known; see `Intake.recover`.
            StoreUnavailable, FlowError: an object store can't be reached, or refuses.
        """
        context = self._context
        self._intake.recover()
        if (folder := self._source.missing()) is not None:
            context.board.say(f"{self.name}: there is no folder {folder} yet; it is waited for")
        try:
            while not context.stop.is_set():
                context.check(self.name)
                self._intake.look(self._source, self._files.format, partition=0)
                while not context.stop.is_set() and self._step():
                    context.check(self.name)
                if context.once:
                    return
                context.stop.wait(self._every)
        finally:
            self._intake.close()

    def _step(self) -> bool:
        """Take one batch; whether there was one."""
        began = time.monotonic()
        taken = self._intake.step()
        if taken is None:
            return False
        self._context.heads.announce()
        for path, why in taken.amiss.items():
            self._context.board.say(f"{self.name}: {path}: {why}; see {ledger_name(self.name)}")
        seconds, at = time.monotonic() - began, time.time()
        self._context.board.batch(
            Batch(
                self.name, taken.sequence, taken.version, taken.rows, taken.rows, 0, seconds, at, taken.newest
            )
        )
        return True
