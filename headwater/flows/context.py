"""What every flow of one run shares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
from pyspark.sql import SparkSession

from headwater.common import times
from headwater.common.progress import Board
from headwater.errors import FlowError
from headwater.flows.bounds import Bounds
from headwater.flows.run_queue import RunQueue
from headwater.planner import changes
from headwater.planner.analysis import Analysed
from headwater.project.cdc.said import END
from headwater.project.definitions import Table
from headwater.project.load import Project
from headwater.storage import hold, pruning
from headwater.storage.lake import Lake
from headwater.storage.target import Target
from headwater.storage.wake import Heads


class Moved(Exception):  # noqa: N818 (nothing is wrong)
    """Another generation of a flow's table has become the live one: its flow is to begin anew, there."""


@dataclass(frozen=True)
class Context:
    """A run.

    Attributes:
        project: the definitions.
        tables: the same, analysed.
        spark: the session of which each flow gets a child.
        lake: where the tables lie.
        board: where the flows say what they do.
        bootstrap: Kafka's address; "" where no flow of the run needs it.
        once: whether the run ends when all is drained.
        close: whether windows that are open then are over, too.
        bounds: how far flows read.
        start: where a source that has read nothing yet begins: see `flows.reading.starting`.
        trigger: how often Kafka is read; None: as the definitions say.
        heads: how commits wake the flows below.
        stop: set when the run shall end.
        refused: {table → why nothing more may be written to it}.
        opened: {table → the generation of it that its flow writes}.
        now: what the flows take for the present, in UTC.
        queue: which of the flows that have something to do work now.
        room: held while this process has many rows of a batch in memory.
        ends: {partition → offset} at which a topic ends, by its name; None: Kafka is asked.
    """

    project: Project
    tables: dict[str, Analysed]
    spark: SparkSession
    lake: Lake
    board: Board
    bootstrap: str = ""
    once: bool = True
    close: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    start: str = "earliest"
    trigger: str | None = None
    heads: Heads = field(default_factory=Heads)
    stop: threading.Event = field(default_factory=threading.Event)
    refused: dict[str, FlowError] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    now: Callable[[], datetime] = times.now
    queue: RunQueue = field(default_factory=RunQueue)
    room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(2))
    ends: Callable[[str], Mapping[int, int]] | None = None

    def open(self, table: Table) -> Target:
        """The table, for the flow that writes it: made if it is missing, with a change feed if it has keys.

        Raises:
            ProjectError: its columns are not those of its definition, or another definition has rebuilt it.
        """
        analysed = self.tables[table.name]
        if table.name in self.opened and self.lake.place(table.name).generation != self.opened[table.name]:
            changes.follow(self.project, self.lake, table.name)
        changes.accept(self.project, self.lake, table.name, analysed)
        properties = dict(table.properties)
        if not analysed.appended:
            properties["delta.enableChangeDataFeed"] = "true"
        place = self.lake.create(table.name, analysed.stored, comment=table.comment, properties=properties)
        target = Target.shared(place)
        if analysed.kind in ("rows", "joined rows", "final joins"):
            target.add(analysed.stored)
        target.require(analysed.stored, table.file)
        if not analysed.appended:
            over = END if table.cdc and table.cdc.scd == 2 else ""
            target.cluster(table.cluster_by or _stand_together(table, analysed), over)
        self.opened[table.name] = place.generation
        return target

    def open_beside(
        self, table: str, name: str, columns: pa.Schema, comment: str, *, anew: bool = False
    ) -> Target:
        """A table that the flow of `table` writes beside it: made if it is missing, or is to be made `anew`.

        Raises:
            Moved: the next generation of `table` is the live one, and so perhaps is what was found.
        """
        place = self.lake.create(name, columns, comment=comment, properties={}, anew=anew)
        self.check(table)
        return Target.shared(place)

    def clock(self) -> str:
        """The present, as intents pin it."""
        return times.text(self.now())

    def refuse(self, table: str, why: FlowError) -> None:
        """Let the flow of a table stop before its next batch."""
        self.refused[table] = why
        self.heads.announce()

    @contextmanager
    def turn(self, table: str) -> Iterator[bool]:
        """Begin a batch of a table's flow, once nobody holds it at rest; False: the run ended before.

        Raises:
            FlowError, Moved: see `check`.
        """
        if table not in self.opened:
            self.check(table)
            yield True
            return
        with hold.turn(self.lake.flow_folder(table), self.stop) as mine:
            if mine:
                self.check(table)
            yield mine

    def check(self, table: str) -> None:
        """Go on only where nothing refused the table, and its generation is the live one.

        Raises:
            FlowError: something refused it.
            Moved: it is another one.
        """
        if table in self.refused:
            raise self.refused[table]
        if table in self.opened and self.lake.place(table).generation != self.opened[table]:
            raise Moved(table)


def _stand_together(table: Table, analysed: Analysed) -> list[str]:
    """The keys by which rows stand together that follow from changes, as these are of some keys at a time."""
    keys = table.cdc.keys if table.cdc else ()
    return [
        key for key in analysed.keys if key in keys and pruning.has_bounds(analysed.stored.field(key).type)
    ]
