"""A project in a folder of its own, and the run of it that is at work."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from pyspark.sql import SparkSession

from headwater.common.progress import Board
from headwater.connectors.produce import Ledger
from headwater.flows.context import Context
from headwater.flows.declared import flow_of
from headwater.operations.rebuild import Rebuilt, rebuild
from headwater.planner import analysis
from headwater.planner.analysis import Analysed
from headwater.project import conf as configuration
from headwater.project.load import Project, load_project
from headwater.storage.lake import Lake
from headwater.storage.wake import Heads
from headwater.testing.clock import Clock
from headwater.testing.files import lay, write
from headwater.testing.reader import Reader
from headwater.testing.session import session


class Run:
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
        files: Mapping[str, str] | Path | str,
        root: Path | str | None = None,
        *,
        spark: SparkSession | None = None,
        at: datetime | str | None = None,
        env: str = "local",
    ) -> None:
        self._folder = None if root else TemporaryDirectory(prefix="headwater-")  # it goes with the object
        self.root = Path(root or str(self._folder and self._folder.name))
        self.env, self.clock, self._spark = env, Clock(at), spark
        self._lines, self._notices = StringIO(), StringIO()
        self.ledger = Ledger()
        self._context: Context | None = None
        self._flows: dict[str, Any] = {}
        self._reader = Reader(self.root, env)
        lay(self.root, Path(files) if isinstance(files, str) else files, env)

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
    def definitions(self) -> Project:
        """The project as its files are now."""
        return load_project(self.root, self.env)

    @property
    def tables(self) -> dict[str, Analysed]:
        """The definitions of the run, analysed."""
        return self.context.tables

    @property
    def lake(self) -> Lake:
        """Where its tables lie."""
        return Lake(configuration.load(self.root, self.env).lake)

    def flow(self, name: str, **options: Any) -> Any:
        """A flow to be stepped by hand, as a run begins it; `options` are those of its `Context`.

        Raises:
            HeadwaterError: it can't begin.
        """
        flow: Any = flow_of(replace(self.context, **options), name)
        if hasattr(flow, "recover"):
            flow.recover()
        return flow

    @property
    def board(self) -> Board:
        """What the flows of the run have said and done."""
        return self.context.board

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
        other.ledger, other._lines, other._notices = Ledger(), StringIO(), StringIO()
        return other._anew()

    @property
    def _loaded(self) -> Project:
        """The definitions of the run, or those with which it will begin."""
        return self._context.project if self._context else self.definitions

    def _anew(self) -> Self:
        self._context, self._flows = None, {}
        return self

    def _new(self) -> Context:
        definitions, spark = self.definitions, self._spark or session()
        return Context(
            definitions,
            analysis.analyse(spark, definitions),
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
