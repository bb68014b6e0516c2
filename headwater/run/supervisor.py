"""`headwater run`: every flow of the project in one Spark session, one worker each."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from headwater.common import times
from headwater.common.durations import interval
from headwater.common.progress import Board
from headwater.connectors import kafka
from headwater.connectors.kafka import wanted
from headwater.connectors.kafka.broker import create_topics
from headwater.errors import Data
from headwater.errors.causes import data_of, describe
from headwater.flows import reading, realtime
from headwater.flows.context import Context, Moved
from headwater.flows.declared import Committing, Flow, flow_of
from headwater.flows.run_queue import RunQueue
from headwater.operations.savepoints import copies
from headwater.planner import analysis
from headwater.planner.analysis import Analysed
from headwater.project.conf import KafkaOptions
from headwater.project.definitions import KafkaSink
from headwater.project.load import Project
from headwater.query.inspect.status import Status, snapshot
from headwater.run.faults import has_failed, is_waiting, jvm_has_ended, jvm_is_gone, may_pass, transient
from headwater.run.leases import Leases
from headwater.run.maintenance import Upkeep
from headwater.run.validation import Schedule
from headwater.runtime import jvm, sessions
from headwater.storage import erasure, failure, mailbox
from headwater.storage.failure import Failure
from headwater.storage.lake import Lake

TRIES = 3  # that follow one another, of what may pass
BACKOFF = (1.0, 30.0)  # seconds: the first wait after a transient fault, and the longest
GRACE = 12.0  # seconds that flows get to end their commit after SIGINT or SIGTERM


@dataclass(frozen=True)
class Options:
    """What `headwater run` was asked for; see `flows.context.Context`."""

    tables: Sequence[str] = ()
    once: bool = False
    close: bool = False
    start: str = "earliest"
    trigger: str | None = None


class Run:
    """A run of a project's flows.

    Args:
        project: the definitions.
        options: what was asked for.
        board: where the flows say what they do.
    """

    def __init__(self, project: Project, options: Options, board: Board) -> None:
        self.board = board
        self._project = project
        self._options = options
        tables = project.above(list(options.tables))
        self._copy = copies.mark(project.conf.lake)  # nothing of which leaves it
        self._alerts = [a for a in project.alerts.values() if a.source in tables and not self._copy]
        self._sinks = [s for s in project.sinks.values() if s.table in tables and not self._copy]
        below = [(a.source, a.name) for a in self._alerts] + [(s.table, s.name) for s in self._sinks]
        self._names = [n for table in tables for n in (table, *(name for of, name in below if of == table))]
        self._client: KafkaOptions | None = None
        self._flows: dict[str, Flow] = {}
        self._threads: list[threading.Thread] = []
        self._beside: list[threading.Thread] = []  # what works beside the flows, and ends with them
        self._stop = threading.Event()
        self._leases = Leases(Lake(project.conf.lake), self._stop.wait)
        self._jvm_gone = threading.Event()

    def stop(self) -> None:
        """End the run after the current commits."""
        self._stop.set()

    def statuses(self) -> list[Status]:
        """Its flows as they are now, each after what it reads."""
        return snapshot(self._project, self.board, self._client)

    def __call__(self, begun: Callable[[], object] = lambda: None) -> int:
        """Run until stopped; with `once`, until all is drained. The exit code: 0, or 1 when a flow failed.

        Args:
            begun: called before the first flow begins.

        Raises:
            HeadwaterError: the run can't begin.
        """
        reading.check(self._options.start)
        interval(self._options.trigger or self._project.conf.trigger)
        lake = Lake(self._project.conf.lake)
        lake.finish()
        erasure.refuse(lake)
        if self._copy and (self._project.alerts or self._project.sinks):
            self.board.say(
                f"{lake.root} is a copy of {self._copy.of}: no alert and no sink runs until its "
                f"{copies.MARK} is removed"
            )
        try:
            self._leases.take(self._names)
            erasure.refuse(lake)  # one that begins now waits for them
            self._run_flows(lake, begun)
        finally:
            # A flow that outlasts its grace may still write: then only the end of the process frees them.
            threads = (*self._threads, *self._beside)
            if not self._jvm_gone.is_set() and not any(thread.is_alive() for thread in threads):
                self._leases.release()
        return 1 if self.board.failed() else 0

    def _run_flows(self, lake: Lake, begun: Callable[[], object]) -> None:
        project = self._project
        spark, tables, bootstrap = self._start()
        context = Context(
            project=project,
            tables=tables,
            spark=spark,
            lake=lake,
            bootstrap=bootstrap,
            once=self._options.once,
            close=self._options.close,
            start=self._options.start,
            trigger=self._options.trigger,
            board=self.board,
            stop=self._stop,
            queue=RunQueue(len(self._names) if self._options.once else None),
        )
        for alert in self._alerts:
            realtime.check(spark, alert)
        schedule, upkeep = Schedule(context, self._names), Upkeep(context, self._flows)
        self._threads = [self._worker(context, name) for name in self._names]
        self.board.expect(self._names)
        begun()
        self.board.stage = ""
        for thread in self._threads:
            thread.start()
        if not self._options.once:
            for name, work in {"quality": schedule.run, "maintain": upkeep.run}.items():
                self._beside.append(threading.Thread(target=work, name=name, daemon=True))
                self._beside[-1].start()
        self._wait(context)
        if self._options.once and not self._stop.is_set():
            self._validate(context, schedule)

    def _start(self) -> tuple[SparkSession, dict[str, Analysed], str]:
        """Spark, the definitions analysed, and Kafka's address ("" where no flow needs it), side by side."""
        project = self._project
        with ThreadPoolExecutor(1) as beside:
            self.board.stage = "starting Spark" + (" and Kafka" if self._uses_kafka() else "")
            kafka_is_ready = beside.submit(self._reach_kafka)
            jvm.gateway()
            slots = kafka_is_ready.result()[1] if self._alerts and not self._options.once else 0
            spark = sessions.start(project.conf, realtime_slots=slots)
            self.board.stage = "analysing the definitions"
            tables = analysis.analyse(spark, project, self._options.tables)
            self.board.stage = "starting the flows"
            return spark, tables, kafka_is_ready.result()[0]

    def _reach_kafka(self) -> tuple[str, int]:
        """Kafka's address, and how many slots the real-time flows hold; ("", 0) where no flow needs it."""
        if not self._uses_kafka():
            return "", 0
        bootstrap = kafka.ensure_running(self._project.root, self._project.conf)
        self._client = kafka.client_options(self._project.conf, bootstrap)
        return bootstrap, self._prepare_topics(self._client)

    def _uses_kafka(self) -> bool:
        """Whether a flow of the run reads or writes a topic."""
        sinks = any(isinstance(sink, KafkaSink) for sink in self._sinks)
        return sinks or bool(self._alerts) or any(name in self._project.topics for name in self._names)

    def _prepare_topics(self, client: KafkaOptions) -> int:
        """Create the topics that the definitions ask for; how many slots the real-time flows hold."""
        project = self._project
        read = [topic for topic in project.topics.values() if topic.name in self._names]
        topics = wanted.topics(read, self._alerts, self._sinks)
        sizes = {made.topic.name: made.partitions for made in create_topics(client, topics)}
        return sum(sizes[project.topics[alert.source].topic] for alert in self._alerts)

    def _worker(self, context: Context, name: str) -> threading.Thread:
        def work() -> None:
            try:
                self._until_done(context, name)
            finally:
                context.heads.end(name)

        return threading.Thread(target=work, name=name, daemon=True)

    def _until_done(self, context: Context, name: str) -> None:
        """Run one flow; after a transient fault begin it again, later and later; any other stops it alone."""
        tries = 0
        while not self._stop.is_set():
            done = self.board.batches(name)
            try:
                context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
                flow = self._begin(context, name)
                self.board.state(name, "running")
                flow.run()
                self.board.state(name, "done")
                return
            except Moved:
                continue
            except BaseException as e:  # of a function that exits, or delta-rs that panics, too
                if self._stop.is_set():
                    return
                if isinstance(e, Py4JNetworkError) or jvm_is_gone(context):
                    gone = jvm_has_ended(name)
                    self.board.state(name, "failed", str(gone), gone.data())
                    self._jvm_gone.set()
                    self._stop.set()
                    return
                tries = 0 if self.board.batches(name) > done else tries + 1
                if not transient(e) and not (may_pass(e) and tries <= TRIES):
                    self._fail(context, name, self._located(name, e), data_of(e))
                    return
                wait = min(BACKOFF[1], BACKOFF[0] * 2 ** min(tries, 10)) * random.uniform(0.5, 1.0)
                said = f"{describe(e)}; trying again in {wait:.0f} s"
                self.board.state(name, "waiting", said, data_of(e))
                self._stop.wait(wait)

    def _fail(self, context: Context, name: str, said: str, data: Data | None) -> None:
        """A flow has stopped for good: here, and for who asks from outside."""
        self.board.state(name, "failed", said, data)
        kept = Failure(times.now(), said, data["code"] if data else None)
        with suppress(Exception):  # of a disk that is full: the run has told it
            failure.note(context.lake.flow_folder(name), kept)

    def _begin(self, context: Context, name: str) -> Flow:
        """A flow, once the lease of the generation that it writes is held.

        Raises:
            Moved: another generation is the live one meanwhile.
        """
        if self._leases.follow(name):
            self.board.say(f"{name} goes on in generation {context.lake.place(name).generation}")
        flow = flow_of(context, name)
        if not self._leases.holds(name):
            raise Moved(name)
        failure.forget([context.lake.flow_folder(name)])
        self._flows[name] = flow
        return flow

    def _located(self, name: str, error: BaseException) -> str:
        """An error in one line that names a file: the one to mend if it knows it, else the flow's own."""
        if data_of(error) is not None:
            return describe(error)
        project = self._project
        declared = {**project.raw, **project.tables, **project.alerts, **project.sinks}
        return f"{declared[name].where}: {describe(error)}"

    def _wait(self, context: Context) -> None:
        """Wait for all flows; from the moment of stopping, only so long."""
        threads = self._threads
        while any(thread.is_alive() for thread in threads) and not self._stop.is_set():
            self._keep_house(context)
            self._stop.wait(0.2)
        if self._beside:
            self._stop.set()
        if self._stop.is_set():
            self.board.stage = "ending after the commits that are being made"
            context.heads.announce()
            deadline = time.monotonic() + GRACE
            for thread in (*threads, *self._beside):
                thread.join(max(0.0, deadline - time.monotonic()))

    def _validate(self, context: Context, schedule: Schedule) -> None:
        """Validate what is due when all is drained; a table that was refused has failed."""
        schedule.step()
        for name, why in context.refused.items():
            self.board.state(name, "failed", str(why), why.data())

    def _keep_house(self, context: Context) -> None:
        """Checkpoints of the logs, which hold up commits; answers for flows that have failed, or wait."""
        for name, flow in list(self._flows.items()):
            if isinstance(flow, Committing):
                try:
                    flow.committer.checkpoint(context.project.conf.maintain.checkpoint)
                except Exception as e:  # the flow goes on, and the next look may do better
                    self.board.say_once(f"{name}: its log gets no checkpoint", describe(e))
        refused = {name: has_failed(name) for name in self.board.failed()}
        refused |= {name: is_waiting(name, why) for name, why in self.board.waiting().items()}
        for name, error in refused.items():
            try:
                mailbox.refuse_all(context.lake.flow_folder(name), error)
            except Exception as e:
                self.board.say_once(f"{name}: who asks something of it gets no answer", describe(e))
