"""A project in a folder of its own: records are sent to it, its flows are stepped, its tables are read."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from pyspark.sql import SparkSession

from headwater.common.progress import Batch, Board
from headwater.connectors.produce import DEFAULT_START, Faults, Ledger
from headwater.errors import ProjectError
from headwater.flows.context import Context, Moved
from headwater.flows.declared import flow_of
from headwater.operations.rebuild import Rebuilt, rebuild
from headwater.planner import analysis
from headwater.planner.analysis import Analysed
from headwater.planner.changes import accept
from headwater.project import conf as configuration
from headwater.project import load as projects
from headwater.project.definitions import Topic
from headwater.query.inspect import beside
from headwater.storage.lake import Lake
from headwater.storage.target import Target
from headwater.storage.wake import Heads
from headwater.testing.clock import Clock
from headwater.testing.files import lay, write
from headwater.testing.generated import generated
from headwater.testing.reader import Reader
from headwater.testing.records import Record, Value, bronze
from headwater.testing.rows import Row, Rows, commit, table
from headwater.testing.session import analysed, session


class Project:
    """A project and its lake; nothing of it is loaded or started before it is needed.

    Args:
        files: {path → text}, or the folder of a project, of which a copy is made.
        root: where it lies; None: in a temporary folder, which goes with the object.
        spark: the session of its flows; None: see `headwater.testing.session`.
        at: where its clock stands until it is moved; None: it goes with the clock of the machine.
        env: the environment.

    Attributes:
        clock: what the flows take for the present: when records came, `reference.clock`, time-outs.
        ledger: what `generate` has sent.
    """

    def __init__(
        self,
        files: Mapping[str, str] | Path,
        root: Path | None = None,
        *,
        spark: SparkSession | None = None,
        at: datetime | str | None = None,
        env: str = "local",
    ) -> None:
        self._folder = None if root else TemporaryDirectory(prefix="headwater-")  # it goes with the object
        self.root = root or Path(str(self._folder and self._folder.name))
        self.env, self.clock, self._spark = env, Clock(at), spark
        self._lines, self._notices = StringIO(), StringIO()
        self.ledger = Ledger()
        self._context: Context | None = None
        self._flows: dict[str, Any] = {}
        self._reader = Reader(self.root, env)
        lay(self.root, files, env)

    def write(self, files: Mapping[str, str]) -> Self:
        """Write files of the project; the next step is that of a new run."""
        write(self.root, files)
        return self._anew()

    def change(self, name: str, old: str, new: str) -> Self:
        """Replace a piece of a file.

        Raises:
            ValueError: the file does not have it.
        """
        text = (self.root / name).read_text(encoding="utf-8")
        if old not in text:
            raise ValueError(f"{name} has no {old!r}")
        return self.write({name: text.replace(old, new)})

    def restart(self) -> Self:
        """Begin a new run over the same lake: load and analyse the definitions as they are now.

        Raises:
            ProjectError, ConfError: one line with file, table and fix.
        """
        self._anew()._context = self._new()
        return self

    @property
    def context(self) -> Context:
        """The run, which goes on: it has not been told that an input has ended."""
        self._context = self._context or self._new()
        return self._context

    @property
    def definitions(self) -> projects.Project:
        """The project as its files are now."""
        return projects.load(self.root, self.env)

    @property
    def tables(self) -> dict[str, Analysed]:
        """The definitions of the run, analysed."""
        return self.context.tables

    @property
    def lake(self) -> Lake:
        """Where its tables lie."""
        return Lake(configuration.load(self.root, self.env).lake)

    def send(self, topic: str, records: Iterable[Record | Value]) -> Self:
        """One commit of a topic's bronze table, as the flow that reads Kafka makes it.

        Args:
            topic: its name, or the table's.
            records: a mapping is sent as JSON, text and bytes as they are, None is a tombstone; a `Record`
                says more than the value.

        Raises:
            ProjectError: no table of bronze reads the topic.
        """
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
            consumed: how far that flow has then read its input; by default it does not say.

        Raises:
            ProjectError: a row does not fit.
        """
        target = self.target(name)
        found = self.tables[name]
        commit(target, found, table(rows, found.stored, name), dict(consumed or {}), self.clock.now())
        return self

    def step(self, *names: str) -> Self:
        """Let flows take what is new until nothing is left, all at one time of the clock; inputs go on.

        Args:
            names: tables, or sinks; by default all tables but those of topics, each after what it reads.

        Raises:
            HeadwaterError: what would have stopped the flow.
        """
        with self.clock.still():
            for name in names or self._derived():
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
        for name in names or self._derived():
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

    def flow(self, name: str, **options: Any) -> Any:
        """A flow to be stepped by hand, as a run begins it; `options` are those of its `Context`.

        Raises:
            HeadwaterError: it can't begin.
        """
        flow: Any = flow_of(replace(self.context, **options), name)
        if hasattr(flow, "recover"):
            flow.recover()
        return flow

    def target(self, name: str) -> Target:
        """A table, open for writing; made if it is missing."""
        project, lake = self._loaded, self.lake
        raw = project.raw.get(name)
        if raw is None:
            return self.context.open(self.context.project.tables[name])
        found = analysis.of_raw(project, raw)
        accept(project, lake, name, found)
        return Target.shared(lake.create(name, found.stored, comment=raw.comment, properties={}))

    @property
    def board(self) -> Board:
        """What the flows of the run have said and done."""
        return self.context.board

    def batches(self, flow: str) -> list[Batch]:
        """What became of each batch of a table or sink in this run, the newest 200."""
        return list(self.board.flows[flow].recent) if flow in self.board.flows else []

    @property
    def notices(self) -> str:
        """What a person was told, a line each."""
        return self._notices.getvalue()

    @property
    def events(self) -> list[dict[str, Any]]:
        """What a machine was told: batches, states of flows, validations."""
        return [json.loads(line) for line in self._lines.getvalue().splitlines()]

    def rebuild(self, *names: str, **options: Any) -> Rebuilt:
        """Rebuild tables and those below them; see `headwater.operations.rebuild.rebuild`."""
        return rebuild(self.definitions, names, notices=Board(notices=self._notices), **options)

    def copied(self, root: Path) -> Self:
        """A copy of the project and of all that it holds, in another folder."""
        shutil.copytree(self.root, root)
        other = copy.copy(self)
        other.root, other.clock, other._reader = root, copy.copy(self.clock), Reader(root, self.env)
        return other._anew()

    @property
    def _loaded(self) -> projects.Project:
        """The definitions of the run, or those with which it will begin."""
        return self._context.project if self._context else self.definitions

    def _anew(self) -> Self:
        self._context, self._flows = None, {}
        return self

    def _new(self) -> Context:
        definitions, spark = self.definitions, self._spark or session()
        return Context(
            definitions,
            analysed(spark, definitions),
            spark,
            Lake(definitions.conf.lake),
            Board(self._lines, self._notices),
            once=False,
            now=self.clock.now,
            ends=lambda _: {},  # all that was sent is in bronze
        )

    def _ended(self, close: bool) -> Context:
        """The run, once all inputs have ended."""
        heads = Heads()
        for name in self.context.project.names():
            heads.end(name)
        return replace(self.context, once=True, close=close, heads=heads)

    def _derived(self) -> list[str]:
        return [*self.context.project.files, *self.context.project.tables]

    def _drained(self, name: str) -> bool:
        """Run one flow until nothing is left; False: another generation of its table is the live one now."""
        if name not in self.context.project.tables:
            flow_of(self._ended(close=False), name).run()
            return True
        flow = self._flows[name] = self._flows.get(name) or self.flow(name)
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
        raise ProjectError(f"no table of bronze reads topic {name}; known: {', '.join(topics)}")
