"""`[LEFT] ASOF JOIN t [AS alias] MATCH_CONDITION (a.time >= alias.time) [ON a.key = alias.key …]`.

The nearest row of `t`. Spark's grammar has no such join. The same is said by an ordinary one with the rows of
`t`, each with the time of the next one of its keys (for `<=` and `<` of the one before): that it is the
nearest is then a condition of the join. Of rows with the same keys and time one counts, by the order of all
their columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import TokenType

from headwater.project.sql.reader import Reader, Rewriting

BESIDE = "_beside"  # the column that the joined rows have more than `t`
_OPERATORS = {TokenType.GTE: ">=", TokenType.GT: ">", TokenType.LTE: "<=", TokenType.LT: "<"}
_OTHERS = {"FULL", "RIGHT", "CROSS", "ANTI", "SEMI", "NATURAL"}  # joins that look for no nearest row
_TURNED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}
_FORM = "write [LEFT] ASOF JOIN table AS t MATCH_CONDITION (a.time >= t.time) ON a.key = t.key"
Sides = tuple[tuple[int, int], tuple[int, int]]  # the places of two expressions, each `[first, behind)`


class Joins(Reader):
    """Those of a statement."""

    def read(self) -> Iterator[Rewriting]:
        """Each of them, in order.

        Raises:
            Refused: one is none that can be told by keys and a time.
        """
        for at in range(len(self._tokens)):
            if self._word(at) == "ASOF":
                self._check_kind(at)
            if self._words(at, 2) == ("ASOF", "JOIN"):
                yield self._one(at, at + 2)
            elif self._words(at, 3) == ("ASOF", "LEFT", "JOIN"):
                yield self._one(at, at + 3)

    def _check_kind(self, at: int) -> None:
        """Refuse other joins than inner and left ones, whose word stands before ASOF or behind it."""
        before = at - 2 if self._word(at - 1) == "OUTER" else at - 1
        behind = at + 1 if self._word(at + 2) in ("JOIN", "OUTER") else at
        if other := {self._word(before), self._word(behind)} & _OTHERS:
            raise self._refused(at, f"ASOF JOIN is none of {min(other)}", _FORM)

    def _one(self, at: int, table: int) -> Rewriting:
        if self._word(table) == "STREAM":
            hint = "write CREATE MATERIALIZED VIEW, without STREAM: it is corrected as rows come"
            raise self._refused(
                at, "ASOF JOIN looks for the nearest of all rows, and a stream gives some", hint
            )
        behind = self._behind(table) if self._opens(table) else self._behind_name(table)
        match = self._find("MATCH_CONDITION", behind)
        if match - behind > 2 or not self._opens(match + 1):
            raise self._refused(at, "ASOF JOIN has no MATCH_CONDITION (…)", _FORM)
        alias = self._tokens[match - 1].text
        time, other, operator = self._match(match + 2, self._behind(match + 1) - 1, alias)
        closed = self._behind(match + 1)
        keys, condition = self._keys(closed, alias)
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        beside = "lead" if operator in (">=", ">") else "lag"
        rows = f"(SELECT *, {beside}({time}) OVER ({by}ORDER BY {time}, struct(*)) AS {BESIDE} FROM "
        beyond = {">=": "<", ">": "<=", "<=": ">", "<": ">="}[operator]
        nearest = f"{other} {operator} `{alias}`.{time} AND (`{alias}`.{BESIDE} IS NULL OR "
        nearest += f"{other} {beyond} `{alias}`.{BESIDE})"
        start, end = self._tokens[match].start, self._tokens[closed - 1].end + 1
        named = f") `{alias}`" if match == behind else ")"
        inserted = [(self._tokens[table].start, rows), (self._tokens[behind - 1].end + 1, named)]
        if condition is None:
            inserted.append((end, f" ON {nearest}"))
        else:
            inserted += [(condition[0], f" ({nearest}) AND ("), (condition[1], ")")]
        asof = self._tokens[at]
        return Rewriting([(asof.start, asof.end + 1), (start, end)], inserted)

    def _match(self, first: int, end: int, alias: str) -> tuple[str, str, str]:
        """The time of the joined rows, the other one, and how the latter compares: `other operator time`."""
        for at in range(first, end):
            operator = _OPERATORS.get(self._tokens[at].token_type)
            if operator is not None:
                mine, theirs = self._own((first, at), (at + 1, end), alias, first)
                turned = mine[0] < theirs[0]
                time = self._tokens[mine[1] - 1].text
                return f"`{time}`", self._said(theirs), _TURNED[operator] if turned else operator
        raise self._refused(first, "MATCH_CONDITION compares by none of >=, >, <=, <", _FORM)

    def _keys(self, at: int, alias: str) -> tuple[list[str], tuple[int, int] | None]:
        """The columns of the joined rows that the condition at a place makes equal; and where it stands."""
        if self._word(at) == "USING":
            raise self._refused(at, "ASOF JOIN … USING does not say whose columns are equal", _FORM)
        if self._word(at) != "ON":
            return [], None
        keys, end, first = [], self._condition_end(at + 1), at + 1
        ends = [each for each in range(first, end) if self._word(each) == "AND"] + [end]
        for behind in ends:
            equal = [each for each in range(first, behind) if self._tokens[each].token_type == TokenType.EQ]
            if len(equal) != 1:
                raise self._refused(first, "ASOF JOIN is ON more than equal columns", _FORM)
            mine, _ = self._own((first, equal[0]), (equal[0] + 1, behind), alias, first)
            keys.append(f"`{self._tokens[mine[1] - 1].text}`")
            first = behind + 1
        return keys, (self._tokens[at].end + 1, self._tokens[end - 1].end + 1)

    def _own(self, one: tuple[int, int], other: tuple[int, int], alias: str, at: int) -> Sides:
        """Of two expressions first the one that is a column of the joined rows."""
        sides: list[tuple[int, int]] = []
        for mine, theirs in ((one, other), (other, one)):
            if self._is_column(mine, alias) and not self._names(theirs, alias):
                sides += [mine, theirs]
        if len(sides) != 2:
            compared, why = self._said((one[0], other[1])), f"one side has to be a column of {alias}"
            raise self._refused(at, f"{compared}: {why}, and the other none", _FORM)
        return sides[0], sides[1]

    def _is_column(self, side: tuple[int, int], alias: str) -> bool:
        return side[1] - side[0] == 3 and self._names(side, alias)

    def _names(self, side: tuple[int, int], alias: str) -> bool:
        """Whether an expression has a column of the joined rows."""
        names = {alias.lower(), f"`{alias.lower()}`"}
        return any(
            self._tokens[at].text.lower() in names and self._tokens[at + 1].token_type == TokenType.DOT
            for at in range(side[0], side[1] - 1)
        )

    def _said(self, side: tuple[int, int]) -> str:
        return self._text[self._tokens[side[0]].start : self._tokens[side[1] - 1].end + 1]
