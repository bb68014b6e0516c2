"""A case done: its project run by the engine's own flows, killed, maintained and rebuilt, and looked at."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from fuzz.look import Looked, WrongError
from fuzz.make import Case
from fuzz.oracles import Sent, in_duckdb, in_spark, topics
from fuzz.values import NOW, json_of
from fuzz.words import Table, files
from headwater.errors import HeadwaterError
from headwater.operations.maintain import maintain
from headwater.operations.rebuild import abort
from headwater.operations.rebuild.reconcile import reconcile
from headwater.operations.replay import resolve
from headwater.runtime import failpoints
from headwater.testing import Project, Record, session

_COMPACT = import_module("headwater.operations.maintain.compact")  # its function has the same name


class Crash(BaseException):
    """The process ends here."""


def _quiet(_: object) -> None:
    """Say nothing of threads that end by a crash."""


class Run:
    """One case at work.

    Attributes:
        counts: what was done, how often.
    """

    def __init__(self, case: Case, root: Path) -> None:
        self._case, self._sent = case, Sent()
        self._tables: dict[str, Table] = {table["name"]: table for table in case["tables"]}
        self._project = Project(files(case), root, at=NOW)
        self._stopped: set[str] = set()  # a sum of theirs no longer fits its type
        self.counts: Counter[str] = Counter({f"table: {_kind(table)}": 1 for table in case["tables"]})

    def __call__(self) -> Counter[str]:
        """Do all of it.

        Raises:
            WrongError: a table is not what it has to be.
            HeadwaterError: the engine stopped where it should not.
        """
        with ExitStack() as patches:
            patches.enter_context(patch.object(_COMPACT, "FEWEST", 2))
            if self._case["many"]:
                patches.enter_context(patch("headwater.flows.rows.FEW", 0))
            for topic in sorted(
                {topic for table in self._case["tables"] for topic in topics(self._case, table["name"])}
            ):
                self._send(topic, [{"part": part, "bad": None} for part in range(self._case["partitions"])])
            for step in self._case["steps"]:
                self.counts[step["do"]] += 1
                self._do(step)
            self._check(closed=False)
            for name in self._tables:
                with self._outgrowing(name):
                    self._project.end(name)
            self._check(closed=True, spark=True)
        self.counts["batches"] = sum(event["event"] == "batch" for event in self._project.events)
        return self.counts

    def _do(self, step: dict[str, Any]) -> None:
        what, table = step["do"], step.get("table")
        if what == "send":
            self._send(step["topic"], step["records"])
        elif what == "step":
            self._step(list(self._tables))
        elif what == "some":
            self._step([name for name in step["tables"] if name in self._tables])
        elif what == "restart":
            self._project.restart()
        elif what == "check":
            self._check(closed=False)
        elif table in self._tables:
            doing: dict[str, Callable[[], object]] = {
                "crash": lambda: self._step([table]),
                "maintain": lambda: maintain(self._project.definitions),
                "rebuild": lambda: self._rebuild(table),
                "reconcile": lambda: self._reconcile(table),
                "mend": lambda: resolve(self._project.definitions, table, "replay"),
            }
            if what == "mend":
                self._mend(table)
            self._crashing(doing[what], step.get("after"))
            if what in ("rebuild", "reconcile", "mend"):
                self._project.restart()

    def _send(self, topic: str, records: Sequence[dict[str, Any]]) -> None:
        sent = []
        for record in records:
            row, bad = record.get("row"), record.get("bad")
            value = json_of(row) if row is not None else None if bad is None else bad.encode("latin-1")
            sent.append(Record(value, partition=record["part"]))
            self._sent.add(topic, record["part"], row)
        self._project.send(topic, sent)
        self.counts["records"] += len(sent)

    def _step(self, names: Sequence[str]) -> None:
        for name in names:
            with self._outgrowing(name):
                self._project.step(name)

    @contextmanager
    def _outgrowing(self, name: str) -> Iterator[None]:
        """Note where a sum of the table does not fit its type; whether that may be is looked at later."""
        try:
            yield
        except HeadwaterError as e:
            if e.code != "SUM_OUTGROWS_TYPE" or e.table not in self._tables:
                raise
            self.counts["refused: SUM_OUTGROWS_TYPE"] += e.table not in self._stopped
            self._stopped.add(e.table)

    def _crashing(self, do: Callable[[], object], after: int | None) -> None:
        """Do something in a process that ends at the n-th step from here, and again in the next one."""
        if after is None:
            do()
            return
        left = [after]

        def reach(_step: str, _flow: str) -> None:
            left[0] -= 1
            if left[0] <= 0:  # in whatever thread: who is dead does no more
                raise Crash

        try:
            with patch.object(failpoints, "reach", reach), patch.object(threading, "excepthook", _quiet):
                do()
        except Crash:
            self.counts["crashed"] += 1
            self._project.restart()
            do()

    def _mend(self, name: str) -> None:
        """Expect nothing more of the rows of a table."""
        tables = [{**each, "rules": []} if each["name"] == name else each for each in self._case["tables"]]
        self._case = {**self._case, "tables": tables}
        self._tables = {each["name"]: each for each in tables}
        (self._project.root / f"quality/{name}.json").unlink(missing_ok=True)
        self._project.restart()
        self._step([name])

    def _rebuild(self, name: str) -> None:
        if not self._is_there(name):
            return
        with self._outgrowing(name):
            try:
                self._project.rebuild(name)
            except HeadwaterError:
                abort(self._project.definitions)
                raise

    def _reconcile(self, name: str) -> None:
        if not self._is_there(name):
            return
        with self._outgrowing(name):
            for found in reconcile(self._project.definitions, [name], limit=3):
                if not found.same:
                    raise WrongError(f"reconcile {name}: {[each for each in found.differences if each]}")

    def _is_there(self, name: str) -> bool:
        """Whether every table has been written, so that there is something to compute anew."""
        return name not in self._stopped and set(self._tables) <= self._project.lake.places().keys()

    def _check(self, *, closed: bool, spark: bool = False) -> None:
        """Compare every table with what it has to be.

        Raises:
            WrongError: one differs.
        """
        if not closed:
            self._step(list(self._tables))
        self.counts["checks"] += 1
        want = in_duckdb(self._case, self._sent)
        looked = Looked(self._case, self._project, want, self._sent, closed, self._stopped)
        looked.compare(in_spark(self._case, self._sent, session()) if spark else {})


def run(case: Case) -> Counter[str]:
    """Do a case in a folder of its own; what was done, how often.

    Raises:
        WrongError: a table is not what it has to be.
        Exception: the engine stopped where it should not.
    """
    with TemporaryDirectory(prefix="headwater-fuzz-") as folder:
        return Run(case, Path(folder))()


def _kind(table: Table) -> str:
    if table["kind"] != "groups":
        return str(table["kind"])
    window = (table["window"] or {"kind": "no window"})["kind"]
    how = (
        "view"
        if table["view"]
        else "final"
        if table["final"]
        else "bounded"
        if table["lateness"] is not None
        else "update"
    )
    return f"groups, {window}, {how}"
