"""The one place where batches are timed, and where it is announced what became of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from headwater.common.report import Account, BatchReport, Stopwatch
from headwater.connectors.sinks import Changes
from headwater.flows.context import Context
from headwater.storage.commit import Committed
from headwater.storage.intent import Intent


class Reporting:
    """One batch of a flow, from now until it is announced.

    Args:
        context: the run.
        flow: the table, sink or alert.
    """

    def __init__(self, context: Context, flow: str) -> None:
        self._context, self._flow = context, flow
        self.watch = Stopwatch()

    def committed(self, intent: Intent, done: Committed, newest: int | None = None) -> None:
        """A batch is part of its table: wake the flows below, and tell the board.

        Args:
            intent: what was pinned.
            done: what became of it.
            newest: Kafka's timestamp of the newest record in the table, where the intent does not say it.
        """
        self._context.heads.announce(self._flow)
        consumed = {name: read for name, read in intent.consumed.items() if name not in intent.references}
        self._tell(
            done.account,
            sequence=intent.sequence,
            version=done.version,
            generation=intent.generation,
            seconds=self.watch.seconds,
            phases=done.phases,
            newest=intent.newest if newest is None else newest,
            inputs={name: int(read["version"]) for name, read in consumed.items() if "version" in read},
            offsets={name: read for name, read in consumed.items() if "version" not in read},
            references=intent.references,
        )

    def sent(self, table: str, changes: Changes) -> None:
        """A sink has a table's changes; the laps of `watch` are the phases."""
        rows, upto = changes.rows, changes.last
        self._tell(
            Account(rows_in=rows, rows_out=rows, rows_read=rows),
            sequence=upto.version,
            generation=upto.generation,
            seconds=self.watch.seconds,
            phases=self.watch.phases,
            inputs={table: upto.version},
        )

    def streamed(self, progress: Mapping[str, Any]) -> None:
        """Spark has done a batch of a query by itself; what it says of it (`StreamingQueryProgress`)."""
        rows = int(progress.get("numInputRows", 0))
        sent = max(0, int((progress.get("sink") or {}).get("numOutputRows", 0)))
        spent = {**progress.get("durationMs", {})}
        spent.pop("triggerExecution", None)  # all of the others
        read = [source.get("endOffset") or {} for source in progress.get("sources") or ()]
        self._tell(
            Account(rows_in=rows, rows_out=sent, rows_read=rows),
            sequence=int(progress["batchId"]),
            seconds=float(progress.get("batchDuration", 0)) / 1000,
            phases={phase: milliseconds / 1000 for phase, milliseconds in spent.items()},
            offsets={topic: ends for source in read for topic, ends in source.items()},
        )

    def _tell(self, account: Account, **what: Any) -> None:
        report = BatchReport(**vars(account), **what, flow=self._flow, at=time.time())
        self._context.board.batch(report)
