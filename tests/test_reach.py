"""What changes touch, on random queries over random rows: with what is touched computed anew from the rows
that are needed, and all else as it was, a result is what the query gives."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.common import scratch
from headwater.flows.touched import OfTable, Touched
from headwater.planner import reach
from headwater.planner.reach.tree import Column, Joined, Kept, Order, Part, Read, United

TABLES = {"t0": ["a", "b", "c"], "t1": ["a", "b"], "t2": ["a", "b"], "t3": ["a", "b", "n"]}
VALUES = {"n": list(range(100))}  # of a column; of others few, so that they meet
KIND = "_change_type"
CASES = 200
MANY = 1_500  # in `make torture`
PLAIN = duckdb.connect()


@dataclass(frozen=True)
class Query:
    """A query, twice: what it is made of, and its SQL, whose columns are called `c<column>`.

    Attributes:
        columns: all of its columns, in order.
    """

    part: Part
    sql: str
    columns: list[int]


class Draw:
    """Draws queries; no two columns have the same number."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._ids, self._reads = itertools.count(1), itertools.count()

    def root(self) -> Query:
        """One whose rows are told apart by all columns."""
        found = self._as_of(1) if self._draw.random() < 0.2 else self.query(self._draw.randint(1, 4))
        return replace(found, sql=f"SELECT DISTINCT * FROM ({found.sql})")

    def query(self, depth: int) -> Query:
        if depth == 0:
            return self._read()
        kinds = [
            self._filtered,
            self._projected,
            self._grouped,
            self._over,
            self._joined,
            self._joined,
            self._united,
            self._as_of,
        ]
        return self._draw.choice(kinds)(depth)

    def _read(self, of: str = "") -> Query:
        table = of or self._draw.choice(list(TABLES))
        columns = {next(self._ids): name for name in TABLES[table]}
        listed = ", ".join(f"{name} AS c{column}" for column, name in columns.items())
        return Query(Read(next(self._reads), table, columns), f"SELECT {listed} FROM {table}", [*columns])

    def _filtered(self, depth: int) -> Query:
        below = self.query(depth - 1)
        column = self._draw.choice(below.columns)
        return replace(
            below, sql=f"SELECT * FROM ({below.sql}) WHERE c{column} % 3 <> 1 OR c{column} IS NULL"
        )

    def _projected(self, depth: int) -> Query:
        below = self.query(depth - 1)
        some = self._draw.sample(below.columns, self._draw.randint(1, len(below.columns)))
        columns: dict[Column, Column] = {next(self._ids): of for of in some}
        listed, all_of = [f"c{of} AS c{column}" for column, of in columns.items()], [*columns]
        if self._draw.random() < 0.3:
            all_of.append(made := next(self._ids))
            listed.append(f"(c{some[0]} + 1) % 3 AS c{made}")
        return Query(Kept(below.part, columns), f"SELECT {', '.join(listed)} FROM ({below.sql})", all_of)  # type: ignore[arg-type]

    def _grouped(self, depth: int) -> Query:
        below = self.query(depth - 1)
        by = self._draw.sample(below.columns, self._draw.randint(1, min(2, len(below.columns))))
        columns: dict[Column, Column] = {next(self._ids): of for of in by}
        value = f"{self._draw.choice(['count', 'max', 'min'])}(c{self._draw.choice(below.columns)})"
        made, having = next(self._ids), self._draw.choice(["", " HAVING count(*) <> 2"])
        listed = [*(f"c{of} AS c{column}" for column, of in columns.items()), f"{value} AS c{made}"]
        groups = ", ".join(f"c{of}" for of in by)
        sql = f"SELECT {', '.join(listed)} FROM ({below.sql}) GROUP BY {groups}{having}"
        return Query(Kept(below.part, columns), sql, [*columns, made])  # type: ignore[list-item]

    def _over(self, depth: int) -> Query:
        below = self.query(depth - 1)
        by = self._draw.sample(below.columns, self._draw.randint(1, min(2, len(below.columns))))
        made = next(self._ids)
        groups, order = (", ".join(f"c{of}" for of in columns) for columns in (by, below.columns))
        over = f"PARTITION BY {groups} ORDER BY {order}"
        sql = f"SELECT *, rank() OVER ({over}) AS c{made} FROM ({below.sql})"
        best = f"SELECT * FROM ({sql}) WHERE c{made} <= 2"
        return Query(
            Kept(below.part, {of: of for of in by}), self._draw.choice([sql, best]), [*below.columns, made]
        )

    def _joined(self, depth: int) -> Query:
        left, right = self.query(depth - 1), self.query(self._draw.randrange(depth))
        pairs = list(
            {
                (self._draw.choice(left.columns), self._draw.choice(right.columns))
                for _ in range(self._draw.choice([1, 1, 1, 2]))
            }
        )
        kind = self._draw.choice(["JOIN", "JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN", "FULL JOIN"])
        on = " AND ".join(f"l.c{one} = r.c{other}" for one, other in pairs)
        if kind != "FULL JOIN" and self._draw.random() < 0.3:
            on += f" AND l.c{self._draw.choice(left.columns)} <> r.c{self._draw.choice(right.columns)}"
        orders = []
        if kind != "FULL JOIN" and self._draw.random() < 0.5:
            one, start, end = (self._draw.choice(each.columns) for each in (left, right, right))
            orders = [Order(start, one), Order(one, end, self._draw.choice([end, None, one]))]
            on += f" AND r.c{start} <= l.c{one} AND (l.c{one} < r.c{end}"
            on += (
                f" OR {'l' if orders[1].open == one else 'r'}.c{orders[1].open} IS NULL)"
                if orders[1].open
                else ")"
            )
        both = f"({left.sql}) l {kind} ({right.sql}) r ON {on}"
        joined = "inner" if kind == "JOIN" else "full" if kind == "FULL JOIN" else "left"
        part = Joined(joined, left.part, right.part, tuple(pairs), tuple(orders))  # type: ignore[arg-type]
        if kind in ("SEMI JOIN", "ANTI JOIN"):
            return Query(part, f"SELECT l.* FROM {both}", left.columns)
        columns = [*left.columns, *right.columns]
        if kind != "FULL JOIN":
            return Query(part, f"SELECT * FROM {both}", columns)
        made = {next(self._ids): pair for pair in pairs}
        listed = ", ".join(
            f"coalesce(l.c{one}, r.c{other}) AS c{column}" for column, (one, other) in made.items()
        )
        kept: dict[Column, Column] = {**made, **{column: column for column in columns}}
        return Query(Kept(part, kept), f"SELECT {listed}, l.*, r.* FROM {both}", [*made, *columns])

    def _as_of(self, depth: int) -> Query:
        """Of rows beside those that are valid then what tells neither by what nor when they are joined."""
        left, right = self._read("t3"), self._read("t0")
        (key, time, left_over), of = left.columns, right.columns
        other, start, end = of
        sole = True
        if depth and self._draw.random() < 0.4:
            right = self.query(depth - 1)
            of = right.columns
            other, start, end = self._draw.choices(of, k=3)
            sole = False
        pair = key, other
        columns: list[int] = [left_over, *(self._draw.sample(of, 1) if self._draw.random() < 0.3 else [])]
        upto = Order(time, end, end, sole=sole and end not in columns)  # type: ignore[arg-type]
        kind, joined = self._draw.choice([("JOIN", "inner"), ("LEFT JOIN", "left")])
        part = Joined(joined, left.part, right.part, (pair,), (Order(start, time), upto))  # type: ignore[arg-type]
        on = f"c{pair[0]} = c{pair[1]} AND c{start} <= c{time} AND (c{end} IS NULL OR c{time} < c{end})"
        sql = f"({left.sql}) {kind} ({right.sql}) ON {on}"
        made = next(self._ids)
        return Query(
            Kept(part, {column: column for column in columns}),
            f"SELECT {', '.join(f'c{column}' for column in columns)}, c{start} + 0 AS c{made} FROM {sql}",
            [*columns, made],
        )

    def _united(self, depth: int) -> Query:
        parts = [self.query(depth - 1), self.query(self._draw.randrange(depth))]
        width = min(len(each.columns) for each in parts)
        kind = self._draw.choice(["UNION ALL", "UNION", "EXCEPT", "INTERSECT"])
        sides = [", ".join(f"c{column}" for column in each.columns[:width]) for each in parts]
        sql = f" {kind} ".join(
            f"SELECT {side} FROM ({each.sql})" for side, each in zip(sides, parts, strict=True)
        )
        columns: list[int] = parts[0].columns[:width]
        united = United(
            tuple(each.part for each in parts),
            dict(zip(columns, zip(*(each.columns[:width] for each in parts), strict=True), strict=True)),
        )
        return Query(united, sql, columns)


Rows = list[tuple[Any, ...]]


def value(draw: random.Random, column: str) -> int | None:
    return draw.choice(VALUES.get(column, [0, 1, 2, 3, None]))


def changed(draw: random.Random, rows: Rows, columns: list[str]) -> tuple[Rows, Rows]:
    """Other rows than these, most of them the same; and those that differ, as they were and as they are."""
    gone = [row for row in rows if draw.random() < 0.15]
    come = [tuple(value(draw, column) for column in columns) for _ in range(draw.randint(0, 2))]
    for row in gone:
        if draw.random() < 0.5:  # one column of it is another
            at = draw.choice([len(columns) - 1, draw.randrange(len(columns))])
            come.append((*row[:at], value(draw, columns[at]), *row[at + 1 :]))
    left = list((Counter(rows) - Counter(gone)).elements())
    return [*left, *come], [*((*row, "delete") for row in gone), *((*row, "insert") for row in come)]


def table_of(rows: Rows, columns: list[str]) -> pa.Table:
    return pa.table(
        {
            name: pa.array([row[at] for row in rows], pa.string() if name == KIND else pa.int64())
            for at, name in enumerate(columns)
        }
    )


def given(sql: str, tables: dict[str, pa.Table]) -> Rows:
    with PLAIN.cursor() as plain:
        for name, rows in tables.items():
            plain.register(name, rows)
        return plain.execute(sql).fetchall()


def check(seed: int, folder: Path) -> bool:
    """Whether a case could be checked: not where all has to be computed anew."""
    draw = random.Random(seed)
    query = Draw(draw).root()
    before: dict[str, Rows] = {
        name: [tuple(value(draw, column) for column in columns) for _ in range(draw.randrange(9))]
        for name, columns in TABLES.items()
    }
    changes = {
        name: changed(draw, before[name], columns) if draw.random() < 0.7 else (before[name], [])
        for name, columns in TABLES.items()
    }
    return follows(query, before, changes, folder, f"seed {seed}")


def follows(
    query: Query, before: dict[str, Rows], changes: dict[str, tuple[Rows, Rows]], folder: Path, case: str
) -> bool:
    """Check that a result follows changes; False: all of it has to be computed anew.

    Args:
        query: what gives it.
        before: the rows of each table.
        changes: of each its rows from then on, and those that differ, as they were and as they are.
        folder: where their files go.
        case: what they are called.
    """
    columns = [f"c{column}" for column in query.columns]
    found = reach.of(query.part, dict(zip(query.columns, columns, strict=True)), columns)
    if isinstance(found, str):
        return False
    now, sources = {}, {}
    for name, (rows, differ) in changes.items():
        now[name] = table_of(rows, TABLES[name])
        pq.write_table(now[name], folder / f"{name} {case}.parquet")
        pq.write_table(table_of(differ, [*TABLES[name], KIND]), folder / f"{name} {case} changed.parquet")
        files = [str(folder / f"{name} {case} changed.parquet")] if differ else []
        adds = pa.table({"path": [f"{name} {case}.parquet"], "size_bytes": [1]})
        sources[name] = OfTable(now[name].schema, adds, folder, files)
    was = given(query.sql, {name: table_of(rows, TABLES[name]) for name, rows in before.items()})
    with scratch.connection() as connection:
        touched = Touched(connection, found, {name: sources[name] for name in {*found.sources.values()}})
        assert touched.find()
        needed = {name: touched.rows(name) if name in touched.sources else now[name] for name in TABLES}
        connection.register("made", table_of(given(query.sql, needed), columns))
        connection.register("held", table_of(was, columns))
        made, gone = (connection.execute(touched.within(name)).fetchall() for name in ("made", "held"))
    got = (Counter(was) - Counter(gone)) + Counter(made)
    want = Counter(given(query.sql, now))
    assert got == want, f"{case}: {query.sql}\n{found}\nlacks {want - got}, has {got - want}"
    return True


def test_a_partner_that_is_not_touched_is_one_all_the_same(tmp_path: Path) -> None:
    a, b, c = (
        Read(number, name, {10 * number + at: column for at, column in enumerate(TABLES[name], start=1)})
        for number, name in enumerate(("t0", "t1", "t2"))
    )
    part = Joined("left", Joined("left", a, b, ((2, 11),)), c, ((1, 21), (12, 22)))
    sql = (
        "SELECT x.a AS c1, x.b AS c2, y.a AS c11, y.b AS c12, z.b AS c22 FROM t0 x "
        "LEFT JOIN t1 y ON x.b = y.a LEFT JOIN t2 z ON x.a = z.a AND y.b = z.b"
    )
    before: dict[str, Rows] = {"t0": [(1, 5, 0)], "t1": [(5, 7)], "t2": [], "t3": []}
    come: Rows = [(1, None)]
    comes: Rows = [(1, None, "insert")]
    same: dict[str, tuple[Rows, Rows]] = {name: (rows, []) for name, rows in before.items()}
    changes = {**same, "t2": (come, comes)}
    assert follows(Query(part, sql, [1, 2, 11, 12, 22]), before, changes, tmp_path, "partners")


def several(first: int, count: int, folder: Path) -> None:
    print(f"seeds from {first} on")
    checked = sum(check(seed, folder) for seed in range(first, first + count))
    assert checked > count / 5


def test_what_is_not_touched_stays_as_it_is(tmp_path: Path) -> None:
    several(random.randrange(2**32), CASES, tmp_path)


@pytest.mark.torture
def test_what_is_not_touched_stays_as_it_is_in_many_cases(tmp_path: Path) -> None:
    several(random.randrange(2**32), MANY, tmp_path)
