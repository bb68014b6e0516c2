"""Bronze → silver, and on: rows that follow from one row each, judged and appended.

What can't be decoded, makes the definition fail or fails an expectation goes to the quarantine, from which
`headwater quarantine replay` has it taken again.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import pyarrow as pa
from py4j.protocol import Py4JNetworkError

from headwater.errors import CommitError, FlowError, HeadwaterError
from headwater.flows import bisect
from headwater.flows.answers import Answers
from headwater.flows.context import Context
from headwater.flows.few import Refused
from headwater.flows.ranged import RangedFlow
from headwater.flows.replay import Replay, Resolution
from headwater.flows.resolving import ResolvingFlow
from headwater.flows.rows import NONE_BROKEN, Rows
from headwater.flows.work import Work
from headwater.project.definitions import Table
from headwater.quality.measure import Findings
from headwater.quality.quarantine import HELD
from headwater.storage import stored
from headwater.storage.commit import Built, Committer, Part
from headwater.storage.identity import Shares
from headwater.storage.intent import Intent
from headwater.storage.mailbox import Request
from headwater.storage.names import lookup_name, quarantine_name
from headwater.storage.target import Target


class DerivedFlow(ResolvingFlow, RangedFlow):
    """The flow of one table whose rows are appended."""

    def __init__(self, context: Context, table: Table, into: Target | None = None) -> None:
        super().__init__(context, table, into)
        self.committer = Committer(self._table, self._intents, open_target=self._open)
        self._carried = False if table.lookup else None
        self._answers: Answers | None = None  # to the rows of the batch that is built
        raw = context.project.raw
        topics = None if into is None else [raw[name].topic for name in table.sources if name in raw]
        self._replay = Replay(context, self._applied, self._table, topics) if table.decode else None

    def recover(self) -> None:
        """Do what a killed process left half done.

        Raises:
            CommitError: the quarantine is of an earlier life of the table.
        """
        super().recover()
        if self._replay is not None:
            self._replay.recover()

    def _beside(self) -> list[str]:
        return [quarantine_name(self._place.name), lookup_name(self._place.name)]

    @property
    def decodes(self) -> bool:
        """Whether it reads raw records, which the quarantine keeps."""
        return self._replay is not None

    def resolve(self, request: Request) -> Resolution:
        if self._replay is None:
            why = f"{self.name} decodes no raw records, so it has no quarantine"
            raise FlowError(why, code="NOTHING_DECODED", table=self.name)
        if request.digest != self._context.project.digest:
            raise FlowError(
                f"{self._context.project.root}: definitions or suites have changed since process "
                f"{os.getpid()}, which writes {self.name}, was started",
                code="DEFINITIONS_OUTDATED",
                table=self.name,
                file=self._context.project.root,
                hint="start that one again, then ask again",
            )
        return self._replay(request)  # what an error means for the flow, its own next batch tells

    def settle(self) -> None:
        if self._replay is not None:
            self._replay.recover()

    def _carry_out(self, intent: Intent, *, begins: Collection[str] = (), left: bool = False) -> bool:
        done = super()._carry_out(intent, begins=begins, left=left)
        if self._answers is not None and done:
            self._answers.hold()
        return done

    def _work(self, intent: Intent) -> Work:
        return self._applied.work(intent.references, self._table, self._answers)

    def _build(self, intent: Intent) -> Built:
        self._answers = self._applied.answers(self._table, intent.clock)
        try:
            rows, files = self._passed(intent, NONE_BROKEN)
        except Refused:
            raise
        except Exception as e:
            rows, files = self._passed(intent, self._broken(intent, e))
        counts, written = rows.counts(), self._table.rows(files)
        tally, gate, findings = counts.tally, self._analysed.gate, Findings()
        if gate is not None:
            findings = gate.findings(tally, self._shares(), intent.clock)
            gate.enforce(tally, findings, intent.sequence)
            self._same(intent, tally.rows, written + tally.dropped + tally.quarantined, "accounted for")
        account = self._account(intent, counts, written, findings=findings)
        parts: dict[str, Part] = {}
        if counts.held:
            name = quarantine_name(self._place.name)
            quarantine = self.committer.target(name)
            parts[name] = quarantine.write(rows.held(intent.clock), intent.batch)
            self._same(intent, counts.held, quarantine.rows(parts[name]), f"found again in {self._stream}")
        if self._answers is not None:
            parts |= self._answers.parts(self._table.place, intent.batch)
        reached = self._answers.reached if self._answers is not None else {}
        parts[self._place.name] = files
        return Built(parts, shares=findings.shares, reached=reached, account=account)

    def _shares(self) -> Shares:
        """What the windows of the suite's shares held after the last batch."""
        return dict(self._table.flows.get(self.name, {}).get("shares", {}))

    def _passed(self, intent: Intent, broken: pa.Table) -> tuple[Rows, list[str]]:
        """The batch without these records, and the files of its rows that pass."""
        rows = self._read(intent, broken)
        return rows, rows.write(self._table, intent.batch)

    def _broken(self, intent: Intent, error: Exception) -> pa.Table:
        """The records because of which the batch failed.

        Raises:
            Exception: `error` itself, where it is not for the table to look for them.
        """
        final = isinstance(error, HeadwaterError | Py4JNetworkError) or self._context.stop.is_set()
        if final or self._definition.on_error == "stop" or self._definition.decode is None:
            raise error
        work = self._work(intent)
        parts = bisect.parts(intent.files, work.columns)
        most, say = bisect.most(intent.rows), self._context.board.say
        return bisect.broken(
            work, parts, error, self._context.stop, most=most, tell=lambda far: say(f"{self.name}: {far}")
        )

    def _same(self, intent: Intent, wanted: int, found: int, how: str) -> None:
        if wanted != found:
            raise CommitError(
                f"{self.name}: batch {intent.sequence}: of {wanted} rows {found} are {how}; that is a defect",
                code="BATCH_NOT_REPEATED",
                table=self.name,
            )

    def _open(self, name: str) -> Target:
        if name == lookup_name(self._place.name):
            return self._applied.told(self._place)
        comment = f"Rows that {self.name} could not take, as they came, with the reason"
        columns = stored.schema(HELD)
        target = self._context.open_beside(self._place.name, name, columns, comment)
        target.require(columns, self._definition.file)
        return target
