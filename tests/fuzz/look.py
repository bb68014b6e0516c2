"""The tables of a case as they are, compared with what they have to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fuzz import compare
from fuzz.make import Case
from fuzz.oracles import WAITING, Sent, topics
from fuzz.values import COLUMNS
from fuzz.words import Table, sources, topic
from headwater import query
from headwater.quality.quarantine import Quarantine
from headwater.testing import Project

_PLACE = ("topic", "part", "off")
_PLACES = '{0}topic AS topic, {0}"partition" AS part, {0}"offset" AS off'


class WrongError(AssertionError):
    """A table is not what it has to be."""


class Looked:
    """The tables of a project.

    Args:
        case: what they are.
        project: where they are.
        want: what they have to be, from DuckDB.
        sent: the records.
        closed: whether the input has ended, so that all windows are over.
        stopped: tables that a sum has stopped, as it does not fit its type.
    """

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
        """Compare all; with what Spark makes of them, too, as far as that is given.

        Raises:
            WrongError: one differs.
        """
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
            elif table["kind"] in WAITING:
                self._waiting(table, batch.get(name))
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
        if of := topic(table):
            held = compare.rows(self._want[f"{name}_held"], _PLACE) + self._sent.bad(of)
            held += [] if table.get("tombstones") else self._sent.tombs(of)
            decodes = f"{name}_changes" if table["kind"] == "changes" else name
            records = Quarantine(self._project.lake, decodes).records()
            there = [row for each in records for row in compare.rows(each, ("topic", "partition", "offset"))]
            _same(f"{name}: its quarantine and DuckDB", compare.differences(there, held))

    def _waiting(self, table: Table, batch: pa.Table | None) -> None:
        name, want = table["name"], self._want[table["name"]]
        columns = [column for column in want.column_names if column != "us"]
        duck = compare.rows(want, columns)
        if batch is not None:
            _same(f"{name}: Spark and DuckDB", compare.differences(compare.rows(batch, columns), duck))
        over = want.filter(pc.less(want["us"], self._closing(table)))
        live = compare.rows(self._live(name, columns), columns)
        _same(f"{name}: live and DuckDB", compare.differences(live, compare.rows(over, columns)))
        late = compare.rows(self._want[f"{name}_late"], _PLACE)
        there = self._beside(f"{name}_late", "_source.")
        _same(f"{name}: its late rows and DuckDB", compare.differences(there, late))

    def _closing(self, table: Table) -> int:
        """The time (microseconds) up to which what waits has seen its rows."""
        if self._closed:
            return 2**62
        upto: list[int | None] = []
        for at, source in enumerate(table["sources"]):
            rows = compare.rows(self._want[f"{table['name']}_reached{at}"], ("topic", "part", "at"))
            reached = {row[:2]: row[2] for row in rows}
            of = topics(self._case, source)
            upto += [reached.get(each) for each in self._sent.partitions if each[0] in of]
        known = [each for each in upto if each is not None]
        if len(known) < len(upto) or not upto:
            return -(2**62)
        return min(known) - table["delay"] * 1_000_000

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


def _same(what: str, differs: str) -> None:
    if differs:
        raise WrongError(f"{what}: {differs}")
