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

import pyarrow as pa

from fuzz import compare
from fuzz.make import Case
from fuzz.oracles import Sent, in_duckdb, in_spark, topics
from fuzz.values import COLUMNS, NOW, json_of
from fuzz.words import Table, files, sources
from headwater import query
from headwater.errors import HeadwaterError
from headwater.operations.maintain import maintain
from headwater.operations.rebuild import abort
from headwater.operations.rebuild.reconcile import reconcile
from headwater.operations.replay import resolve
from headwater.quality.quarantine import Quarantine
from headwater.runtime import failpoints
from headwater.testing import Project, Record, session

_COMPACT = import_module("headwater.operations.maintain.compact")  # its function has the same name
_PLACE = ("topic", "part", "off")
_PLACES = '{0}topic AS topic, {0}"partition" AS part, {0}"offset" AS off'


class Crash(BaseException):
    """The process ends here."""


def _quiet(_: object) -> None:
    """Say nothing of threads that end by a crash."""


class WrongError(AssertionError):
    """A table is not what it has to be."""


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
            self._check(closed=True)
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
            self._check(closed=False, spark=False)
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

    def _check(self, *, closed: bool, spark: bool = True) -> None:
        """Compare every table with what it has to be.

        Raises:
            WrongError: one differs.
        """
        if not closed:
            self._step(list(self._tables))
        self.counts["checks"] += 1
        want = in_duckdb(self._case, self._sent)
        found = _Looked(self._case, self._project, want, self._sent, closed, self._stopped)
        batch = in_spark(self._case, self._sent, session()) if spark else {}
        found.compare(batch)


class _Looked:
    """The tables as they are, beside what they have to be."""

    def __init__(
        self,
        case: Case,
        project: Project,
        want: dict[str, pa.Table],
        sent: Sent,
        closed: bool,
        stopped: set[str],
    ) -> None:
        self._case, self._project, self._want, self._sent = case, project, want, sent
        self._closed, self._stopped = closed, stopped
        self._connection = query.connect(project.root, env="local")

    def compare(self, batch: dict[str, pa.Table]) -> None:
        lost = set(self._stopped)
        for table in self._case["tables"]:
            name = table["name"]
            if name in self._stopped and not self._may_outgrow(table):
                raise WrongError(
                    f"{name} stopped by SUM_OUTGROWS_TYPE, and no order of its rows makes a sum too large"
                )
            if lost & {name, *sources(table)}:
                lost.add(name)
                continue
            if table["kind"] == "groups":
                self._groups(table, batch.get(name))
            else:
                self._rows(table, batch.get(name))

    def _rows(self, table: Table, batch: pa.Table | None) -> None:
        name, want = table["name"], self._want[table["name"]]
        of_rows = table["kind"] in ("decoded", "rows", "union")
        columns = [*COLUMNS, *_PLACE] if of_rows else want.column_names
        selected = [*COLUMNS, _PLACES.format("_source.")] if of_rows else columns
        live = compare.rows(self._live(name, selected), columns)
        duck = compare.rows(want, columns)
        if batch is not None:
            _same(f"{name}: Spark and DuckDB", compare.differences(compare.rows(batch, columns), duck))
        _same(f"{name}: live and DuckDB", compare.differences(live, duck))
        if table["kind"] == "decoded":
            held = [
                *compare.rows(self._want[f"{name}_held"], _PLACE),
                *self._sent.bad(table["source"].split(".")[1]),
            ]
            records = Quarantine(self._project.lake, name).records()
            there = [row for each in records for row in compare.rows(each, ("topic", "partition", "offset"))]
            _same(f"{name}: its quarantine and DuckDB", compare.differences(there, held))

    def _groups(self, table: Table, batch: pa.Table | None) -> None:
        name, want = table["name"], self._want[table["name"]]
        keys = [*(table["window"] or {}).get("shown", ()), *table["keys"]]
        columns = [out["name"] for out in table["outputs"]]
        sized = [column for column in columns if f"_m_{column}" in want.column_names]
        groups = compare.grouped(want, keys, columns)
        hidden = compare.grouped(want, keys, [f"_m_{column}" for column in sized])
        sizes = {key: {column: values[f"_m_{column}"] for column in sized} for key, values in hidden.items()}
        if batch is not None:
            found = compare.grouped(batch, keys, columns)
            _same(f"{name}: Spark and DuckDB", compare.group_differences(found, groups, sizes))
        open_windows = self._open(table, keys)
        over = {key: values for key, values in groups.items() if key not in open_windows}
        live = compare.grouped(self._live(name, [*keys, *columns]), keys, columns)
        _same(f"{name}: live and DuckDB", compare.group_differences(live, over, sizes))
        if f"{name}_late" in self._want:
            late = self._beside(f"{name}_late", "_source.")
            wanted = compare.rows(self._want[f"{name}_late"], _PLACE)
            _same(f"{name}: its late rows and DuckDB", compare.differences(late, wanted))
        if table["final"]:
            held = len(self._beside(f"{name}__state", None))
            _same(
                f"{name}: open windows",
                "" if held == len(open_windows) else f"{held}, not {len(open_windows)}",
            )

    def _open(self, table: Table, keys: list[str]) -> set[Any]:
        """The keys of windows that are not over."""
        if not table["final"] or self._closed:
            return set()
        reached = {
            row[:2]: row[2]
            for row in compare.rows(self._want[f"{table['name']}_reached"], ("topic", "part", "at"))
        }
        of = topics(self._case, table["name"])
        upto = [reached.get(each) for each in self._sent.partitions if each[0] in of]
        ends = compare.grouped(self._want[table["name"]], keys, ["_end"])
        if None in upto:
            return set(ends)
        closing = min(each for each in upto if each is not None) - table["delay"] * 1_000_000
        last = 0 if table["window"]["kind"] == "session" else 1  # a window of time ends before its end
        return {key for key, values in ends.items() if values["_end"] - last >= closing}

    def _may_outgrow(self, table: Table) -> bool:
        """Whether some order of its rows makes a sum too large for its type on the way."""
        want = self._want[table["name"]]
        for out in table["outputs"]:
            if out["fn"] == "sum":
                limit = {"n": 2.0**63, "i": 2.0**63, "t": 2.0**63, "w": 1e28, "d": 1e20}.get(out["of"])
                sizes = want[f"_m_{out['name']}"].to_pylist()
                if limit and max(sizes, default=0) >= limit * (1 - 1e-9):
                    return True
        return False

    def _live(self, name: str, columns: Sequence[str]) -> pa.Table:
        return self._connection.execute(f"SELECT {', '.join(columns)} FROM {name}").to_arrow_table()

    def _beside(self, name: str, of: str | None) -> list[tuple[Any, ...]]:
        """The places of the rows of a table beside another one; of None, one of each row."""
        if name not in self._project.lake.places():
            return []
        if of is None:
            return compare.rows(self._live(name, ["1 AS one"]), ["one"])
        return compare.rows(self._live(name, [_PLACES.format(of)]), _PLACE)


def run(case: Case) -> Counter[str]:
    """Do a case in a folder of its own; what was done, how often.

    Raises:
        WrongError: a table is not what it has to be.
        Exception: the engine stopped where it should not.
    """
    with TemporaryDirectory(prefix="headwater-fuzz-") as folder:
        return Run(case, Path(folder))()


def _same(what: str, differs: str) -> None:
    if differs:
        raise WrongError(f"{what}: {differs}")


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
