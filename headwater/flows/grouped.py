"""What changes in a view's groups, and in the state that they are made of, with rows that come and go.

`headwater.planner.groups` says what the state has. DuckDB adds up what the changed rows add and take, in
memory: they, and what the state has of their groups and values, are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from headwater.common import database, scratch
from headwater.common.diff import same
from headwater.common.scratch import quoted
from headwater.errors import FlowError, Where
from headwater.flows.touched import Found
from headwater.planner.group_by import DISTINCT
from headwater.planner.groups import PART, ROWS, Groups, Output
from headwater.storage import feed, pruning
from headwater.storage.feed import SIGN
from headwater.storage.scan import load, scan
from headwater.storage.target import GONE, Target

_OF_GROUPS = pruning.Reach(((0, 0),))  # the part of the state that has a row for each group


@dataclass(frozen=True)
class Grouped:
    """The groups of a view.

    Args:
        groups: how they are kept.
        state: what they are made of.
        columns: theirs.
        where: what errors name.
    """

    groups: Groups
    state: Target
    columns: pa.Schema
    where: Where

    def change(self, rows: pa.Table) -> tuple[pa.Table, Changed]:
        """What changes with some rows: in the state, as `Target.change` has it; and the groups.

        Args:
            rows: as `groups.rows` gives them, with a `SIGN`.

        Raises:
            FlowError: a sum is too large for its type.
        """
        with scratch.connection() as connection:
            return self._change(connection, rows)

    def near(self, connection: duckdb.DuckDBPyConnection, wanted: pa.Table) -> Found:
        """The groups, as they were, that may have keys like those of one of the wanted."""
        of = {output.name: output.column for output in self.groups.outputs if output.kind == "key"}
        reaches = pruning.reaches(wanted, [name for name in wanted.column_names if name in of])
        files = self.state.near({PART: _OF_GROUPS, **{of[name]: each for name, each in reaches.items()}})
        values = {of[name]: wanted[name] for name in reaches}
        found = scan(connection, self.groups.state, files, [values])
        return Found(self._values(found.sql), found.parameters, files)

    def _change(self, connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> tuple[pa.Table, Changed]:
        connection.register("rows_changed", rows)
        connection.execute(f"CREATE TEMP TABLE fresh AS {self._fresh(scratch.kinds(self.groups.state))}")
        keys = [quoted(name) for name in self.groups.keys]
        fresh = connection.table("fresh").to_arrow_table()
        near = self.state.near(pruning.reaches(fresh, self.groups.keys))
        of_fresh = f"SELECT there.* FROM there SEMI JOIN fresh ON {same('there', 'fresh', keys)}"
        alike = {key: fresh[key] for key in self.groups.keys}
        load(connection, "held_state", self.groups.state, near, of_fresh, [alike])
        connection.execute(f"CREATE TEMP TABLE merged AS {self._merged()}")
        connection.execute(f"CREATE TEMP TABLE state AS {self._state(connection)}")
        was = database.table(connection, self._values("held_state")).cast(self.columns)
        try:
            now = database.table(connection, self._values("state")).cast(self.columns)
        except duckdb.ConversionException as e:
            raise FlowError(
                f"{self.where}: a sum is too large for its type, so the batch is not committed",
                code="SUM_OUTGROWS_TYPE",
                where=self.where,
                hint=f"cast what it adds to DECIMAL(38, …), then run headwater rebuild {self.where.table}",
            ) from e
        listed = ", ".join(map(quoted, self.groups.state.names))
        gone = f"{ROWS} <= 0" if self.groups.names else f"{ROWS} <= 0 AND {PART} > 0"
        changes = database.table(connection, f"SELECT {listed}, {gone} AS {GONE} FROM state")
        changes = changes.cast(self.groups.state.append(pa.field(GONE, pa.bool_())))
        return changes, Changed(self, was, now)

    def _fresh(self, kinds: Mapping[str, str]) -> str:
        """SQL of what the changed rows add to each part of the state."""
        groups, parts = self.groups, []
        for part, value in enumerate(("", *groups.values)):
            listed = [f"CAST({part} AS INT) AS {PART}", *groups.groups]
            listed += [name if name == value else f"NULL AS {name}" for name in groups.values]
            listed.append(f"sum({SIGN}) AS {ROWS}")
            listed += [f"{self._added(each, value, kinds)} AS {each.column}" for each in groups.aggregates]
            counted = f"CAST(count(*) FILTER ({{0}} IS NOT NULL AND {SIGN} > 0) AS BIGINT)"
            counted += f" - count(*) FILTER ({{0}} IS NOT NULL AND {SIGN} < 0)"
            listed += [
                f"{counted.format(each.column) if value in ('', each.value) else 'NULL'} AS {each.counted}"
                for each in groups.aggregates
                if each.counted
            ]
            by = [*groups.groups, *([value] if value else [])]
            of = f"WHERE {value} IS NOT NULL" if value else ""
            grouped = f"GROUP BY {', '.join(by)}" if by else "HAVING count(*) > 0"
            parts.append(f"SELECT {', '.join(listed)} FROM rows_changed {of} {grouped}")
        typed = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items())
        return f"SELECT {typed} FROM ({' UNION ALL '.join(parts)})"

    @staticmethod
    def _added(output: Output, value: str, kinds: Mapping[str, str]) -> str:
        """What rows add to an aggregate: of their group, or of a value that is counted."""
        if value and output.value != value:
            return "NULL"
        if output.kind == DISTINCT and not value:
            return "0"  # `_state` says it: that depends on what values there were
        if output.kind in ("min", "max"):
            return "NULL" if output.value else f"{output.kind}({output.column})"
        wide = f"CAST({output.column} AS {kinds[output.column]})"  # a type's least number has no other sign
        return f"sum({SIGN} * {wide})"

    def _merged(self) -> str:
        """SQL of the rows of the state that change, as they are then, but for what depends on all values."""
        groups = self.groups
        keys = [PART, *groups.groups, *groups.values]
        on = same("f", "h", keys)
        values = []
        for each in groups.aggregates:
            f, h = f"f.{each.column}", f"h.{each.column}"
            if each.kind in ("min", "max") and each.value:
                values.append(f"{h} AS {each.column}")
            elif each.kind in ("min", "max"):
                least = "least" if each.kind == "min" else "greatest"
                values.append(f"{least}(coalesce({f}, {h}), coalesce({h}, {f})) AS {each.column}")
            else:
                any_left = (
                    f"{_plus(f'f.{each.counted}', f'h.{each.counted}')} > 0" if each.counted else "true"
                )
                values.append(f"CASE WHEN {any_left} THEN {_plus(f, h)} END AS {each.column}")
        values += [
            f"{_plus(f'f.{each.counted}', f'h.{each.counted}')} AS {each.counted}"
            for each in groups.aggregates
            if each.counted
        ]
        added = ", ".join(
            [*(f"f.{key}" for key in keys), f"{_plus(f'f.{ROWS}', f'h.{ROWS}')} AS {ROWS}", *values]
        )
        return f"SELECT {added} FROM fresh f LEFT JOIN held_state h ON {on}"

    def _state(self, connection: duckdb.DuckDBPyConnection) -> str:
        """SQL of the rows of the state that change, as they are then."""
        groups = self.groups
        keys, state = [PART, *groups.groups, *groups.values], "merged"
        for each in groups.aggregates:
            if each.value and each.kind != DISTINCT:
                self._find_extremes(connection, each)
                extreme = f"CASE WHEN m.{PART} = 0 THEN e.value END AS {each.column}"
                state = (
                    f"(SELECT m.* REPLACE ({extreme}) FROM {state} m "
                    f"LEFT JOIN {each.column}_extremes e ON {same('m', 'e', groups.groups)})"
                )
        distinct = [each for each in groups.aggregates if each.kind == DISTINCT]
        if not distinct:
            return f"FROM {state}"
        # A value counts where a row has it: it is new where none had it, and gone where none has it any more.
        counted = ", ".join(
            f"sum(CAST(m.{each.column} > 0 AS INT) - CAST(coalesce(h.{each.column}, 0) > 0 AS INT)) "
            f"AS {each.column}"
            for each in distinct
        )
        by_group = (
            f"SELECT {', '.join([*(f'm.{group}' for group in groups.groups), counted])} FROM merged m "
            f"LEFT JOIN held_state h ON {same('m', 'h', keys)} WHERE m.{PART} > 0 GROUP BY ALL"
        )
        replaced = ", ".join(
            f"CASE WHEN m.{PART} = 0 THEN coalesce(m.{each.column}, 0) + coalesce(d.{each.column}, 0) "
            f"ELSE m.{each.column} END AS {each.column}"
            for each in distinct
        )
        return (
            f"WITH counted AS ({by_group}) SELECT m.* REPLACE ({replaced}) "
            f"FROM {state} m LEFT JOIN counted d ON {same('m', 'd', groups.groups)}"
        )

    def _find_extremes(self, connection: duckdb.DuckDBPyConnection, output: Output) -> None:
        """Make a table of each group's extreme: where the one that there was has gone, of all its values."""
        groups, value, name = self.groups, output.value, output.column
        part = 1 + groups.values.index(value)
        listed = [f"{{0}}.{group}" for group in groups.groups]
        of = ", ".join([*listed, ""])
        went = f"m.{PART} = {part} AND m.{output.counted} <= 0 AND h.{PART} = 0 AND m.{value} = h.{name}"
        connection.execute(
            f"CREATE TEMP TABLE {name}_went AS SELECT {of.format('m')} m.{value} FROM merged m "
            f"JOIN held_state h ON {same('m', 'h', groups.groups)} AND {went}"
        )
        lost = connection.table(f"{name}_went").to_arrow_table()
        wanted = {PART: pruning.Reach(((part, part),)), **pruning.reaches(lost, groups.groups)}
        load(connection, f"{name}_near", groups.state, self.state.near(wanted) if len(lost) else [])
        of_went = f"{name}_went w ON {same('{0}', 'w', groups.groups)}"
        others = (
            f"SELECT {of.format('n')} n.{value} AS value FROM {name}_near n SEMI JOIN {of_went.format('n')} "
            f"ANTI JOIN merged m ON {same('m', 'n', [PART, *groups.groups, *groups.values])} "
            f"WHERE n.{PART} = {part} AND n.{output.counted} > 0"
        )
        new = f"SELECT {of.format('m')} {value} FROM merged m WHERE {PART} = {part} AND {output.counted} > 0"
        held = (
            f"SELECT {of.format('h')} {name} FROM held_state h ANTI JOIN {of_went.format('h')} "
            f"WHERE h.{PART} = 0 AND {name} IS NOT NULL"
        )
        connection.execute(
            f"CREATE TEMP TABLE {name}_extremes AS SELECT {of.format('v')} {output.kind}(v.value) AS value "
            f"FROM ({others} UNION ALL {new} UNION ALL {held}) v GROUP BY ALL"
        )

    def _values(self, state: str) -> str:
        """SQL of the groups that are there, by some rows of the state."""
        kinds, values = scratch.kinds(self.columns), []
        for each in self.groups.outputs:
            value = each.column
            if each.kind == "avg":
                value = (
                    f"CASE WHEN {each.counted} > 0 THEN CAST({each.column} AS DOUBLE) / {each.counted} END"
                )
            values.append(f"CAST({value} AS {kinds[each.name]}) AS {quoted(each.name)}")
        there = f"{ROWS} > 0" if self.groups.names else "true"
        return f"SELECT {', '.join(values)} FROM {state} WHERE {PART} = 0 AND {there}"


@dataclass(frozen=True)
class Changed:
    """The groups of a view as a `touched.Source`, with those that have changed.

    Attributes:
        grouped: the groups.
        was, now: those that have changed, as they were and as they are.
    """

    grouped: Grouped
    was: pa.Table
    now: pa.Table

    def __len__(self) -> int:
        return max(len(self.was), len(self.now))

    @property
    def columns(self) -> pa.Schema:
        return self.grouped.columns

    @property
    def place(self) -> Sequence[str]:
        return self.grouped.groups.names

    @property
    def has_changed(self) -> bool:
        return bool(len(self.was) or len(self.now))

    def changed(self, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> Found:
        connection.register("groups_changed", pa.concat_tables([self.was, self.now]))
        return Found(f"SELECT {', '.join(map(quoted, columns))} FROM groups_changed")

    def signed(self) -> pa.Table:
        return feed.both(self.now, self.was)

    def rows(
        self, connection: duckdb.DuckDBPyConnection, wanted: pa.Table, within: Mapping[str, pruning.Reach]
    ) -> Found:
        keys = [quoted(name) for name in self.place]
        connection.register("groups_now", self.now)
        connection.register("groups_changed", pa.concat_tables([self.was, self.now]))
        if {*wanted.column_names} >= {*self.place}:
            connection.register("asked", wanted)
            others = connection.execute(
                f"FROM asked ANTI JOIN groups_changed ON {same('asked', 'groups_changed', keys)} LIMIT 1"
            )
            if not others.fetchall():
                return Found("FROM groups_now")
        there = self.grouped.near(connection, wanted)
        on_same = same("near", "groups_changed", keys)
        rows = f"FROM ({there.sql}) near ANTI JOIN groups_changed ON {on_same} UNION ALL FROM groups_now"
        return Found(rows, there.parameters, there.files)


def _plus(one: str, other: str) -> str:
    """The sum of both; that of a value and NULL is the value."""
    return f"CASE WHEN {one} IS NULL THEN {other} WHEN {other} IS NULL THEN {one} ELSE {one} + {other} END"
