"""Files → bronze: a folder is looked at again and again, each file in it taken once; see `flows.intake`."""

from __future__ import annotations

from headwater.common.durations import interval
from headwater.connectors.files.source import source
from headwater.flows.context import Context
from headwater.flows.intake import Bounds, Intake
from headwater.flows.reporting import Reporting
from headwater.planner.changes import accept
from headwater.project.definitions import Files
from headwater.storage.names import ledger_name
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
        self._every = interval(trigger).total_seconds()

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
        reporting = Reporting(self._context, self.name)
        taken = self._intake.step()
        if taken is None:
            return False
        reporting.committed(taken.intent, taken.done)
        for path, why in taken.batch.amiss.items():
            self._context.board.say(f"{self.name}: {path}: {why}; see {ledger_name(self.name)}")
        return True
