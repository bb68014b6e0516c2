"""What a definition says of the changes that its table follows from, in the words of AUTO CDC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import Column

CHANGES = "_changes"  # behind a table's name: the changes that it follows from
SEQUENCE, DELETED, TRUNCATED = "_sequence", "_deleted", "_truncated"  # columns of these
TOMBSTONE = "_tombstone"  # of a decoder that takes them: whether the record had no value
EVENT = ("_op", "_lsn", "_file", "_pos", "_row", "_ts_ms")  # columns of Debezium's events
START, END = "__START_AT", "__END_AT"  # columns of a history, as Lakeflow calls them

Scd = Literal[1, 2]


@dataclass(frozen=True)
class Columns:
    """Columns chosen among those that there are, in their order; letters may be small or large.

    Attributes:
        only: these; None: all.
        but: not these.
    """

    only: tuple[str, ...] | None = None
    but: tuple[str, ...] = ()

    def of(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that are chosen."""
        only, but = _lower(self.only or ()), _lower(self.but)
        return [
            name for name in names if (self.only is None or name.lower() in only) and name.lower() not in but
        ]

    def unknown(self, names: Sequence[str]) -> list[str]:
        """Those it names that are not among `names`."""
        known = _lower(names)
        return [name for name in (*(self.only or ()), *self.but) if name.lower() not in known]


@dataclass(frozen=True)
class Cdc:
    """How a table follows from changes.

    Attributes:
        keys: the columns that tell which row a change is of.
        sequence_by: an expression: which of two changes of a row is the later one.
        scd: 1: the rows as they are now; 2: with their history.
        deletes: a condition: the change deletes its row. None: none does.
        truncates: a condition: the change deletes all rows before it. None: none does.
        columns: those that the table has, beside its keys.
        ignored: those of which NULL in a change says nothing; None: none.
        tracked: with a history, those whose change begins another version of a row.
        snapshots: whether the source has rows that are delivered whole: those with the same sequence are all
            that there are then.
        line: of its file, which says it; 0: that is not known.
    """

    keys: tuple[str, ...]
    sequence_by: str
    scd: Scd = 1
    deletes: str | None = None
    truncates: str | None = None
    columns: Columns = Columns()
    ignored: Columns | None = None
    tracked: Columns = Columns()
    snapshots: bool = False
    line: int = field(default=0, compare=False, repr=False)

    @property
    def is_told_by_versions(self) -> bool:
        """Whether it is a history, each version of which says all that went before it."""
        return self.scd == 2 and self.tracked == Columns() and not self.snapshots

    @property
    def is_told_by_last(self) -> bool:
        """Whether of the changes of a row the last one says all."""
        return self.scd == 1 and self.ignored is None and self.truncates is None and not self.snapshots


def of_arguments(
    *,
    keys: Sequence[str | Column],
    sequence_by: str | Column,
    scd: Any = 1,
    apply_as_deletes: str | Column | None = None,
    apply_as_truncates: str | Column | None = None,
    ignore_null_updates: bool = False,
    column_list: Sequence[str | Column] | None = None,
    except_column_list: Sequence[str | Column] | None = None,
    ignore_null_updates_column_list: Sequence[str | Column] | None = None,
    ignore_null_updates_except_column_list: Sequence[str | Column] | None = None,
    track_history_column_list: Sequence[str | Column] | None = None,
    track_history_except_column_list: Sequence[str | Column] | None = None,
    snapshots: bool = False,
    line: int = 0,
) -> Cdc:
    """What Python says, by the names of Lakeflow's arguments; see `headwater.auto_cdc`.

    Raises:
        TypeError: an argument that can't be.
    """
    if str(scd) not in ("1", "2"):
        raise TypeError(f"scd = {scd!r}: it is 1 or 2")
    if isinstance(keys, str) or not keys:
        raise TypeError(f"keys = {keys!r}: it is a list of columns")
    ignored = _chosen(ignore_null_updates_column_list, ignore_null_updates_except_column_list)
    return checked(
        Cdc(
            keys=tuple(map(_text, keys)),
            sequence_by=_text(sequence_by),
            scd=2 if str(scd) == "2" else 1,
            deletes=None if apply_as_deletes is None else _text(apply_as_deletes),
            truncates=None if apply_as_truncates is None else _text(apply_as_truncates),
            columns=_chosen(column_list, except_column_list) or Columns(),
            ignored=ignored or (Columns() if ignore_null_updates else None),
            tracked=_chosen(track_history_column_list, track_history_except_column_list) or Columns(),
            snapshots=snapshots,
            line=line,
        )
    )


def checked(cdc: Cdc) -> Cdc:
    """The same.

    Raises:
        TypeError: it says what only the other kind of table can have.
    """
    if cdc.scd == 2 and cdc.truncates is not None:
        raise TypeError("a history (SCD 2) keeps what was, and can't be truncated")
    if cdc.scd == 1 and cdc.tracked != Columns():
        raise TypeError("history is tracked with SCD 2 alone")
    if cdc.snapshots and (cdc.deletes, cdc.truncates, cdc.ignored) != (None, None, None):
        raise TypeError("rows that are delivered whole say all of a row, and delete those that they lack")
    return cdc


def valid_at(time: str, version: str = "") -> str:
    """That a version of a row is of a time, as SQL.

    Args:
        time: an expression.
        version: what a query calls the table with the history; "": it is the only one.
    """
    start, end = (f"`{version}`.{name}" if version else name for name in (START, END))
    return f"{start} <= {time} AND ({end} IS NULL OR {time} < {end})"


def flow_name(source: str, into: str) -> str:
    """What a flow is called that has no name: by the tables that it reads and feeds."""
    return "_from_".join(name.rpartition(".")[2] for name in (into, source))


def _chosen(only: Sequence[str | Column] | None, but: Sequence[str | Column] | None) -> Columns | None:
    if only is not None and but is not None:
        raise TypeError("columns are listed, or those that are left out, not both")
    if only is None and but is None:
        return None
    return Columns(None if only is None else tuple(map(_text, only)), tuple(map(_text, but or ())))


def _text(said: str | Column) -> str:
    """A name or an expression, as SQL."""
    if isinstance(said, str):
        return said
    node = getattr(getattr(said, "_jc", None), "node", None)
    if node is None:
        raise TypeError(f"{said!r} is no text and no column")
    text = str(node().sql())
    return text[1:-1] if text.startswith("(") and text.endswith(")") and text.count("(") == 1 else text


def _lower(names: Sequence[str]) -> set[str]:
    return {name.lower() for name in names}
