"""Kafka → bronze: batches that append one Delta commit each, which carries the batch's number and the offsets
after it, and is the checkpoint.

So no batch is taken for another, whatever was restored, copied or removed. Backlogs are read by Spark
(`headwater.flows.backlog`), what comes to a topic that is read to its end by this process
(`headwater.flows.following`): each begins where the table's newest commit ends.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

from headwater.common.report import Account
from headwater.connectors import kafka
from headwater.errors import BrokerError, FlowError, Unavailable
from headwater.flows import gaps
from headwater.flows.backfill import Backfill, Beside
from headwater.flows.backlog import Backlog
from headwater.flows.context import Context
from headwater.flows.following import FEW, Following
from headwater.flows.gaps import Watched
from headwater.flows.reading import Size, Write
from headwater.flows.reporting import Reporting
from headwater.planner.changes import accept
from headwater.project.definitions import Topic
from headwater.storage.commit import Built
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.target import Target


class SourceFlow:
    """The flow of one bronze table."""

    def __init__(self, context: Context, topic: Topic) -> None:
        self.name = topic.name
        self._context = context
        self._topic = topic
        self._folder = context.lake.flow_folder(topic.name)
        analysed = context.tables[topic.name]
        self._fingerprint = analysed.fingerprint
        accept(context.project, context.lake, topic.name, analysed)
        self._place = context.lake.create(topic.name, analysed.stored, comment=topic.comment, properties={})
        self._table = Target.shared(self._place)
        self.committer = gaps.committer(context.lake, self._table)
        client = kafka.client_options(context.project.conf, context.bootstrap)
        self._watched = Watched(self._table, topic, client)
        self._backfill = Backfill(context.project, context.lake, topic, self._table)
        self._beside = Beside(
            self._backfill, topic, self._folder, context.stop, partial(context.heads.announce, self.name)
        )
        self._size = Size(context.project.conf, topic, client)
        self._backlog = Backlog(context, topic, self._table, self._watched, self._size)
        self._following = Following(context, topic, self._table, self._watched)

    def run(self) -> None:
        """Read Kafka until the run ends; with `once`, until what is there now is read.

        Raises:
            FlowError: what the flow has kept is of a table that is gone.
            Exception: what made a batch fail.
        """
        self._check_life()
        gaps.recover(self.committer)
        self._backfill.recover()
        with closing(self._beside):
            self._read()
            self._beside.finish()

    def _read(self) -> None:
        while not self._context.stop.is_set():
            if self._is_near():
                self._following(self._size.admitted, self._take, self._look_up)
                continue
            last = self._table.last(self.name)
            self._backlog(self._take, self._look_up)
            if self._context.once:
                break
            if self._table.last(self.name) == last:
                self._context.stop.wait(self._following.apart)

    def _is_near(self) -> bool:
        """Whether little is to be read, so without Spark; `Backlog` says why Kafka can't be asked."""
        if self._context.once:
            return False
        try:
            behind = self._following.behind()
        except (Unavailable, BrokerError, FlowError):
            return False
        return behind is not None and behind <= FEW

    def _look_up(self) -> None:
        """What there is to be done between batches.

        Raises:
            HeadwaterError: the run is to end.
        """
        self._context.check(self.name)
        self._beside.look_up()

    def _take(self, consumed: dict[str, Any], write: Write) -> None:
        """Commit a batch, in turns with what another process asks for."""
        with self._beside.turn():
            self._commit(consumed, write)

    def _commit(self, consumed: dict[str, Any], write: Write) -> None:
        """Commit a batch: the offsets after it, and what it writes."""
        reporting, sequence = Reporting(self._context, self.name), self._table.last(self.name) + 1
        left = self.committer.unsealed()
        intent = Intent(
            flow=self.name,
            generation=self._place.generation,
            sequence=sequence,
            consumed=consumed,
            clock=left.clock if left is not None and left.sequence == sequence else self._context.clock(),
            fingerprint=self._fingerprint,
            topics=self._watched.ids(),
        )

        def build(pinned: Intent) -> Built:
            files, rows, size, newest = write(pinned)
            self._size.note(rows, size)
            self._watched.check()
            account = Account(rows_in=rows, rows_out=rows, rows_read=rows, bytes_read=size)
            return Built({self.name: files}, newest=newest, account=account)

        done = self.committer.carry_out(intent, build)
        reporting.committed(intent, done, self._table.flows[self.name]["newest"])

    def _check_life(self) -> None:
        """Check that what the flow has kept is of the table that is there.

        Raises:
            FlowError: it is of one that is gone.
        """
        kept = IntentFile(self._folder).read()
        begun = kept is not None and (kept.sealed or kept.sequence > 1)
        if begun and self.name not in self._table.flows:
            raise FlowError(
                f"{self.name}: {self._folder} is of a table that is gone",
                code="FLOW_ORPHANED",
                table=self.name,
                file=self._folder,
                hint="remove it too, and run again to read the topic from the start",
            )
