"""A case at work: its project run by the engine's own flows, crashed, maintained, rebuilt, and looked at."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fuzz.look import Looked, WrongError
from fuzz.make import Case
from fuzz.oracles import Sent, in_duckdb, in_spark, topics
from fuzz.values import NOW, json_of, time_of
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


class Progress:
    """How far a case is, in a file: what one process leaves to the next.

    Attributes:
        begun: at which step it was; None: at none yet.
        counts: what was done before, how often.
        stopped: tables of which a sum no longer fits its type.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        said = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.begun: int | None = said.get("begun")
        self.counts: Counter[str] = Counter(said.get("counts", {}))
        self.stopped: set[str] = set(said.get("stopped", ()))

    def begin(self, at: int) -> None:
        """Note that a step begins."""
        said = {"begun": at, "counts": self.counts, "stopped": sorted(self.stopped)}
        half = self._file.with_suffix(".part")
        half.write_text(json.dumps(said), encoding="utf-8")
        os.replace(half, self._file)


class Run:
    """One case at work, from its beginning, or from the step at which another process was killed.

    Args:
        case: what is done.
        root: where its project lies.
        progress: how far it is.
        arm: has this process be killed before the n-th write from then on, or so many seconds later.
    """

    def __init__(self, case: Case, root: Path, progress: Progress, arm: Callable[[int, float], None]) -> None:
        self._case, self._sent, self._progress, self._arm = case, Sent(), progress, arm
        self._tables: dict[str, Table] = {table["name"]: table for table in case["tables"]}
        self._steps = [*_first(case), *case["steps"], {"do": "check"}, {"do": "end"}]
        self._now, self._again, self._is_dead = NOW, False, False
        for step in self._steps[: progress.begun or 0]:
            self._was_done(step)
        self._project = Project(files(self._case), root, at=self._now)

    def __call__(self) -> Counter[str]:
        """Do all of it, or what is left; what was done, how often.

        Raises:
            WrongError: a table is not what it has to be.
            HeadwaterError: the engine stopped where it should not.
        """
        begun, counts = self._progress.begun, self._progress.counts
        if begun is None:
            counts.update(f"table: {_kind(table)}" for table in self._case["tables"])
        with ExitStack() as patches:
            patches.enter_context(patch.object(_COMPACT, "FEWEST", 2))
            if self._case.get("touched"):
                patches.enter_context(patch("headwater.flows.computed.WHOLE", -1))
            if self._case["many"]:
                patches.enter_context(patch("headwater.flows.rows.FEW", 0))
            if not self._case.get("held", True):
                patches.enter_context(patch("headwater.flows.rows.MANY", 0))
            for at, step in list(enumerate(self._steps))[begun or 0 :]:
                self._again = at == begun
                self._progress.begin(at)
                self._do(step)
                counts[step["do"]] += 1
        counts["batches"] += sum(event["event"] == "batch" for event in self._project.events)
        return counts

    def _was_done(self, step: dict[str, Any]) -> None:
        """Take a step for done by another process: what this one has to know of it."""
        if step["do"] == "send":
            self._note(step)
        elif step["do"] == "clock":
            self._now += timedelta(seconds=step["seconds"])
        elif step["do"] == "mend" and step["table"] in self._tables:
            self._expect_nothing(step["table"])

    def _do(self, step: dict[str, Any]) -> None:
        what, table = step["do"], step.get("table")
        if what == "send":
            self._send(step)
        elif what == "clock":
            self._now += timedelta(seconds=step["seconds"])
            self._project.clock.set(self._now)
        elif what == "kill":
            self._arm(step["writes"], step["later"])
        elif what == "end":
            for name in self._tables:
                with self._outgrowing(name):
                    self._project.end(*self._flows(name))
            self._check(closed=True, spark=True)
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

    def _send(self, step: dict[str, Any]) -> None:
        """Send records, unless the process that was killed had done so."""
        topic, records = step["topic"], step["records"]
        table = f"bronze.{topic}"
        if not (self._again and len(self._project.rows(table, "1")) > self._sent.count(topic)):
            self._project.send(topic, [_record(each) for each in records])
            self._progress.counts["records"] += len(records)
        self._note(step)

    def _note(self, step: dict[str, Any]) -> None:
        for record in step["records"]:
            self._sent.add(step["topic"], record, self._now, after=step.get("after", False))

    def _step(self, names: Sequence[str]) -> None:
        for name in names:
            with self._outgrowing(name):
                self._project.step(*self._flows(name))

    def _flows(self, name: str) -> list[str]:
        """The flows that make a table, in their order."""
        return [f"{name}_changes", name] if self._tables[name]["kind"] == "changes" else [name]

    @contextmanager
    def _outgrowing(self, name: str) -> Iterator[None]:
        """Note where a sum of the table does not fit its type; whether that may be is looked at later."""
        try:
            yield
        except HeadwaterError as e:
            if e.code != "SUM_OUTGROWS_TYPE" or e.table not in self._tables:
                raise
            self._progress.counts["refused: SUM_OUTGROWS_TYPE"] += e.table not in self._progress.stopped
            self._progress.stopped.add(e.table)

    def _crashing(self, do: Callable[[], object], after: int | None) -> None:
        """Do something in a process that ends at the n-th step from here, and again in the next one."""
        if after is None:
            do()
            return
        left = after

        def reach(_step: str, _flow: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:  # in whatever thread: who is dead does no more
                self._is_dead = True
                raise Crash

        try:
            with patch.object(failpoints, "reach", reach), patch.object(threading, "excepthook", _quiet):
                do()
        except (Crash, HeadwaterError):  # an error says that a thread has crashed
            if not self._is_dead:
                raise
        if self._is_dead:
            self._is_dead = False
            self._progress.counts["crashed"] += 1
            self._project.restart()
            do()

    def _mend(self, name: str) -> None:
        """Expect nothing more of the rows of a table."""
        self._expect_nothing(name)
        (self._project.root / f"quality/{name}.json").unlink(missing_ok=True)
        self._project.restart()
        self._step([name])

    def _expect_nothing(self, name: str) -> None:
        tables = [{**each, "rules": []} if each["name"] == name else each for each in self._case["tables"]]
        self._case = {**self._case, "tables": tables}
        self._tables = {each["name"]: each for each in tables}

    def _rebuild(self, name: str) -> None:
        if not self._is_there(name):
            return
        with self._outgrowing(name):
            try:
                self._project.rebuild(name)
            except HeadwaterError:
                if not self._is_dead:
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
        return name not in self._progress.stopped and set(self._tables) <= self._project.lake.places().keys()

    def _check(self, *, closed: bool, spark: bool = False) -> None:
        """Compare every table with what it has to be.

        Raises:
            WrongError: one differs.
        """
        if not closed:
            self._step(list(self._tables))
        self._progress.counts["checks"] += 1
        want = in_duckdb(self._case, self._sent)
        looked = Looked(self._case, self._project, want, self._sent, closed, self._progress.stopped)
        looked.compare(in_spark(self._case, self._sent, session()) if spark else {})


def _first(case: Case) -> list[dict[str, Any]]:
    """The first record of each partition, which none can decode: no partition is without one; and what is
    read once, as soon as it is there."""
    records = [{"part": part, "bad": None} for part in range(case["partitions"])]
    read = {topic for table in case["tables"] for topic in topics(case, table["name"])}
    sends = [{"do": "send", "topic": topic, "records": records} for topic in sorted(read)]
    dumped = case.get("once", {})
    sends += [{"do": "send", "topic": topic, "records": of} for topic, of in dumped.items() if topic in read]
    return [*sends, {"do": "step"}] if dumped else sends


def _record(said: dict[str, Any]) -> Record:
    row, bad = said.get("row"), said.get("bad")
    value = json_of(row) if row is not None else None if bad is None else bad.encode("latin-1")
    key = said.get("key", next(map(str, said.get("tomb", {}).values()), None))
    return Record(value, key, said["part"], timestamp=time_of(said["sent"]) if "sent" in said else None)


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
