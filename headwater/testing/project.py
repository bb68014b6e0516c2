"""A project in a test: records are sent to it, its flows are stepped, its tables are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from headwater.common.report import BatchReport
from headwater.connectors.produce import DEFAULT_START, Faults
from headwater.errors import ProjectError
from headwater.flows.context import Moved
from headwater.flows.declared import flow_of
from headwater.planner import analysis
from headwater.planner.changes import accept
from headwater.project.definitions import KafkaSink, Table, Topic
from headwater.project.reference import CLOCK
from headwater.storage.names import beside
from headwater.storage.ranges import Position
from headwater.storage.target import Target
from headwater.testing.generated import generated
from headwater.testing.records import Record, Value, bronze
from headwater.testing.rows import Row, Rows, commit, table
from headwater.testing.run import Run


class Project(Run):
    """A project to send records to, step and read; for its arguments see `headwater.testing.run.Run`."""

    def send(self, topic: str, records: Iterable[Record | Value]) -> Self:
        """One commit of a topic's bronze table, as the flow that reads Kafka makes it.

        Args:
            topic: its name, or the table's.
            records: a mapping is sent as JSON, text and bytes as they are, None is a tombstone; a `Record`
                says more than the value.

        Raises:
            ProjectError: no table of bronze reads the topic, or the records are no list.
        """
        if isinstance(records, Mapping | str | bytes | Record):
            raise ProjectError(
                f"records are sent as a list, and {records!r} is none",
                code="TEST_ROW_INVALID",
                hint="write send(topic, [record])",
            )
        raw = self._raw(topic)
        target, now = self.target(raw.name), self.clock.now()
        ends = target.flows.get(raw.name, {}).get("consumed", {}).get(raw.topic, {})
        cluster, found = self._loaded.conf.cluster, analysis.of_raw(self._loaded, raw)
        sent = bronze(records, topic=raw.topic, cluster=cluster, now=now, ends=ends)
        commit(target, found, sent.rows, {raw.topic: sent.ends}, now, sent.newest)
        return self

    def generate(
        self,
        name: str,
        count: int,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        start: datetime = DEFAULT_START,
    ) -> Self:
        """Send the first records of `generators/NAME.py`; one commit for each topic.

        Args:
            name: the generator.
            count: so many records.
            seed: the same seed gives the same records.
            faults: the shares of bad ones among them; `ledger` says how many there were.
            start: the event time of the first one; each next one is 100 ms later.

        Raises:
            ProjectError: there is no such generator, or no table of bronze reads its topic.
        """
        records, ledger = generated(
            self.root, name, count, seed=seed, faults=faults or Faults(), start=start, raw=self._raw
        )
        self.ledger.produced += ledger.produced
        self.ledger.faults += ledger.faults
        for topic, sent in records.items():
            self.send(topic, sent)
        return self

    def append(self, name: str, rows: Iterable[Row], *, consumed: Mapping[str, Any] | None = None) -> Self:
        """One commit of any table, as its flow makes it; rows of a table with keys are merged.

        Args:
            name: the table.
            rows: {column → value} by the columns that it stores; what a row leaves out is NULL.
            consumed: how far that flow has then read its inputs; by default no further than before.

        Raises:
            ProjectError: a row does not fit.
        """
        target, found = self.target(name), self.tables[name]
        if consumed is None:
            sources = (
                set(getattr(self._loaded.definition(name), "sources", ())) - self._loaded.references.keys()
            )
            start = {source: Position(generation=0).json() for source in sources}
            consumed = target.flows.get(name, {}).get("consumed", start)
        commit(target, found, table(rows, found.stored, name), dict(consumed), self.clock.now())
        return self

    def step(self, *names: str) -> Self:
        """Let flows take what is new until nothing is left, all at one time of the clock; inputs go on.

        Args:
            names: tables, or sinks; by default all tables but those of topics, each after what it reads.

        Raises:
            ProjectError: a name is of what reads or writes Kafka.
            HeadwaterError: what would have stopped the flow.
        """
        with self.clock.still():
            for name in self._named(names):
                while not self._drained(name):
                    del self._flows[name]  # it begins anew, in its table's next generation
        return self

    def end(self, *names: str, close: bool = True) -> Self:
        """Let the inputs end, and the same flows with them, as `headwater run --once --close` does.

        Args:
            names: as for `step`.
            close: whether open windows are over, too; without it as `headwater run --once`.

        Raises:
            HeadwaterError: what would have stopped a flow.
        """
        context = self._ended(close)
        for name in self._named(names):
            flow_of(context, name).run()
        self._flows = {}  # they know nothing of these batches
        return self

    def rows(self, name: str, columns: str = "*") -> Rows:
        """The rows of a table as queries see them, as tuples: `columns` is SQL and says what is in them.

        A table that no flow has written yet has none.

        Raises:
            QueryError: there is no such table, or column.
        """
        lake = self.lake
        if name not in lake.places():
            known = self._loaded.names()
            if name in known or any(name in beside(each) for each in known):
                return Rows()
        return self._reader.rows(f"SELECT {columns} FROM {name}", lake)

    def target(self, name: str) -> Target:
        """A table, open for writing; made if it is missing.

        Raises:
            ProjectError: there is no such definition.
        """
        project, lake = self._loaded, self.lake
        raw = project.raw.get(name)
        if raw is None:
            definition = self.context.project.definition(name)
            assert isinstance(definition, Table)
            return self.context.open(definition)
        found = analysis.of_raw(project, raw)
        accept(project, lake, name, found)
        return Target.shared(lake.create(name, found.stored, comment=raw.comment, properties={}))

    def batches(self, flow: str) -> list[BatchReport]:
        """What became of each batch of a table or sink in this run, the newest 200.

        Raises:
            ProjectError: there is no such table.
        """
        if flow in self.board.flows:
            return list(self.board.flows[flow].recent)
        if flow not in self._loaded.sinks:
            self._loaded.definition(flow)
        return []

    def _named(self, names: Sequence[str]) -> Sequence[str]:
        """What is named; by default all tables but those of topics.

        Raises:
            ProjectError: a name is of what reads or writes Kafka.
        """
        project = self.context.project
        sinks = {name for name, sink in project.sinks.items() if isinstance(sink, KafkaSink)}
        for name in names:
            if name in {*project.topics, *project.alerts, *sinks}:
                raise ProjectError(
                    f"{name} reads or writes Kafka, and a project in a test has no broker",
                    code="TEST_WITHOUT_BROKER",
                    table=name,
                    hint="send records with send(topic, […]), and look at the table that it reads",
                )
        return names or [*project.files, *project.tables]

    def _drained(self, name: str) -> bool:
        """Run one flow until nothing is left; False: another generation of its table is the live one now."""
        definition = self.context.project.tables.get(name)
        if definition is None:
            flow_of(self._ended(close=False), name).run()
            return True
        known = None if CLOCK in definition.sources else self._flows.get(name)  # one that begins looks at it
        flow = self._flows[name] = known or self.flow(name)
        worked = True
        while worked:
            try:
                with self.context.turn(name) as mine:
                    worked = mine and flow.step()
            except Moved:
                return False
        return True

    def _raw(self, name: str) -> Topic:
        topics = self._loaded.topics
        for topic in topics.values():
            if name in (topic.name, topic.topic):
                return topic
        raise ProjectError(
            f"no table of bronze reads topic {name}; known: {', '.join(topics)}",
            code="UNKNOWN_TABLE",
            table=name,
        )
