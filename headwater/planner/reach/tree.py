"""A query over whole tables as what carries columns from its inputs to its result.

Of an analysed plan only that is kept which says how far a changed row reaches: the inputs, which columns of a
part are columns of what it is made of, as they are, and by which columns its parts are joined. What is left
out (filters, computed columns, aggregates' values) may change of a row that is reached, and of no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# A column of one part of the plan, by Spark's `exprId`; or COALESCE of the two by which a FULL JOIN joins.
Column = int | tuple[int, int]
Kind = Literal["inner", "left", "full"]


@dataclass(frozen=True)
class Read:
    """One reading of an input, of which a query may have several.

    Attributes:
        number: which one, from 0.
        source: the table's name.
        columns: {column → its name in the table}.
        changes: whether its rows may change: a reference table is read anew as a whole.
    """

    number: int
    source: str
    columns: Mapping[Column, str]
    changes: bool = True


@dataclass(frozen=True)
class Kept:
    """Rows that are made of one part's: each of rows with the same values in these columns.

    A projection and a filter keep all columns that are not computed, GROUP BY and DISTINCT those that they
    group by, a window function those of PARTITION BY.

    Attributes:
        part: what they are made of.
        columns: {column → the part's column that it is}.
    """

    part: Part
    columns: Mapping[Column, Column]


@dataclass(frozen=True)
class Order:
    """That a column of one part is at most one of the other.

    Attributes:
        less, more: the columns.
        open: of which of the two NULL does as well; None: of neither.
        sole: whether `more` is asked for nothing else: no other condition, expression or result has it.
    """

    less: Column
    more: Column
    open: Column | None = None
    sole: bool = False


@dataclass(frozen=True)
class Joined:
    """Two parts, joined on equal columns, and perhaps on more.

    Attributes:
        kind: `inner`; `left`, of which each row of the left part depends on its partners alone: a left outer,
            a semi or an anti join; or `full`.
        left, right: the parts.
        pairs: the columns that are equal, left and right.
        orders: of which one is at most the other, perhaps less.
    """

    kind: Kind
    left: Part
    right: Part
    pairs: tuple[tuple[int, int], ...]
    orders: tuple[Order, ...] = ()


@dataclass(frozen=True)
class United:
    """Rows of several parts, by position: UNION, EXCEPT, INTERSECT.

    Attributes:
        parts: the parts.
        columns: {column → the column of each part}.
    """

    parts: tuple[Part, ...]
    columns: Mapping[Column, tuple[Column, ...]]


@dataclass(frozen=True)
class Whole:
    """What depends on all rows of its parts.

    Attributes:
        why: for people: what of the query does.
    """

    why: str


Part = Read | Kept | Joined | United | Whole
