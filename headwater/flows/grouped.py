"""What changes in a view's groups, and in the state that they are made of, with rows that come and go.

`headwater.planner.groups` says what the state has. DuckDB adds up what the changed rows add and take, in
memory: they, and what the state has of their groups and values, are few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from headwater.common.diff import same
from headwater.common.scratch import load, quoted
from headwater.errors import FlowError, Where
from headwater.planner.group_by import DISTINCT
from headwater.planner.groups import PART, ROWS, Groups, Output
from headwater.storage import pruning
from headwater.storage.feed import SIGN
from headwater.storage.target import GONE, Target


@dataclass(frozen=True)
class Grouped:
    """The groups of a view.

    Args:
        groups: how they are kept.
        state: what they are made of.
        columns: the view's.
        where: what errors name.
    """

    groups: Groups
    state: Target
    columns: pa.Schema
    where: Where

    def change(self, connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> pa.Table:
        """What changes in the state with some rows, as `Target.change` has it.

        The connection then has `groups`: the view's columns of each group that they are of and that is still
        there; and `of_groups`: the keys of all of these.

        Args:
            connection: one of its own; see `headwater.common.scratch`.
            rows: as `groups.rows` gives them, with a `SIGN`.

        Raises:
            FlowError: a sum is too large for its type.
        """
        connection.register("rows_changed", rows)
        connection.execute(f"CREATE TEMP TABLE fresh AS {self._fresh(_kinds(connection, self.groups.state))}")
        keys = [quoted(name) for name in self.groups.keys]
        fresh = connection.table("fresh").to_arrow_table()
        near = self.state.near(pruning.reaches(fresh, self.groups.keys))
        load(connection, "near", self.groups.state, near)
        connection.execute(
            "CREATE TEMP TABLE held_state AS SELECT near.* FROM near "
            f"SEMI JOIN fresh ON {same('near', 'fresh', keys)}"
        )
        connection.execute(f"CREATE TEMP TABLE state AS {self._state()}")
        named = ", ".join(
            f"{quoted(output.column)} AS {quoted(output.name)}"
            for output in self.groups.outputs
            if output.kind == "key"
        )
        connection.execute(f"CREATE TEMP TABLE of_groups AS SELECT {named} FROM state WHERE {PART} = 0")
        try:
            connection.execute(
                f"CREATE TEMP TABLE groups AS {self._values(_kinds(connection, self.columns))}"
            )
        except duckdb.ConversionException as e:
            raise FlowError(
                f"{self.where}: a sum is too large for its type, so the batch is not committed",
                code="SUM_OUTGROWS_TYPE",
                where=self.where,
                hint=f"cast what it adds to DECIMAL(38, …), then run headwater rebuild {self.where.table}",
            ) from e
        listed = ", ".join(map(quoted, self.groups.state.names))
        changes = connection.execute(f"SELECT {listed}, {ROWS} <= 0 AS {GONE} FROM state").to_arrow_table()
        return changes.cast(self.groups.state.append(pa.field(GONE, pa.bool_())))

    def _fresh(self, kinds: Mapping[str, str]) -> str:
        """SQL of what the changed rows add to each part of the state."""
        groups, parts = self.groups, []
        for part, value in enumerate(("", *groups.values)):
            listed = [f"CAST({part} AS INT) AS {PART}", *groups.groups]
            listed += [name if name == value else f"NULL AS {name}" for name in groups.values]
            listed.append(f"sum({SIGN}) AS {ROWS}")
            listed += [f"{self._added(each, value)} AS {each.column}" for each in groups.aggregates]
            counted = f"CAST(count(*) FILTER ({{0}} IS NOT NULL AND {SIGN} > 0) AS BIGINT)"
            counted += f" - count(*) FILTER ({{0}} IS NOT NULL AND {SIGN} < 0)"
            listed += [
                f"{'NULL' if value else counted.format(each.column)} AS {each.counted}"
                for each in groups.aggregates
                if each.counted
            ]
            by = ", ".join([*groups.groups, *([value] if value else [])])
            of = f"WHERE {value} IS NOT NULL" if value else ""
            parts.append(f"SELECT {', '.join(listed)} FROM rows_changed {of} GROUP BY {by}")
        typed = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items())
        return f"SELECT {typed} FROM ({' UNION ALL '.join(parts)})"

    @staticmethod
    def _added(output: Output, value: str) -> str:
        """What rows add to an aggregate: of their group, or of a value that is counted."""
        if value and output.value != value:
            return "NULL"
        if output.kind == DISTINCT and not value:
            return "0"  # `_state` says it: that depends on what values there were
        if output.kind in ("min", "max"):
            return f"{output.kind}({output.column})"
        return f"sum({SIGN} * {output.column})"

    def _state(self) -> str:
        """SQL of the rows of the state that change, as they are then."""
        groups = self.groups
        keys = [PART, *groups.groups, *groups.values]
        on = same("f", "h", keys)
        values = []
        for each in groups.aggregates:
            f, h = f"f.{each.column}", f"h.{each.column}"
            if each.kind in ("min", "max"):
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
        merged = f"SELECT {added} FROM fresh f LEFT JOIN held_state h ON {on}"
        distinct = [each for each in groups.aggregates if each.kind == DISTINCT]
        if not distinct:
            return merged
        # A value counts where a row has it: it is new where none had it, and gone where none has it any more.
        counted = ", ".join(
            f"sum(CAST(m.{each.column} > 0 AS INT) - CAST(coalesce(h.{each.column}, 0) > 0 AS INT)) "
            f"AS {each.column}"
            for each in distinct
        )
        by_group = (
            f"SELECT {', '.join(f'm.{group}' for group in groups.groups)}, {counted} FROM merged m "
            f"LEFT JOIN held_state h ON {same('m', 'h', keys)} WHERE m.{PART} > 0 GROUP BY ALL"
        )
        replaced = ", ".join(
            f"CASE WHEN m.{PART} = 0 THEN coalesce(m.{each.column}, 0) + coalesce(d.{each.column}, 0) "
            f"ELSE m.{each.column} END AS {each.column}"
            for each in distinct
        )
        return (
            f"WITH merged AS ({merged}), counted AS ({by_group}) SELECT m.* REPLACE ({replaced}) "
            f"FROM merged m LEFT JOIN counted d ON {same('m', 'd', groups.groups)}"
        )

    def _values(self, kinds: Mapping[str, str]) -> str:
        """SQL of the view's rows of the groups that are still there."""
        values = []
        for each in self.groups.outputs:
            value = each.column
            if each.kind == "avg":
                value = (
                    f"CASE WHEN {each.counted} > 0 THEN CAST({each.column} AS DOUBLE) / {each.counted} END"
                )
            values.append(f"CAST({value} AS {kinds[each.name]}) AS {quoted(each.name)}")
        return f"SELECT {', '.join(values)} FROM state WHERE {PART} = 0 AND {ROWS} > 0"


def _plus(one: str, other: str) -> str:
    """The sum of both; that of a value and NULL is the value."""
    return f"CASE WHEN {one} IS NULL THEN {other} WHEN {other} IS NULL THEN {one} ELSE {one} + {other} END"


def _kinds(connection: duckdb.DuckDBPyConnection, columns: pa.Schema) -> dict[str, str]:
    """{column → its type in DuckDB}."""
    found = connection.from_arrow(columns.empty_table())
    return dict(zip(found.columns, map(str, found.types), strict=True))
