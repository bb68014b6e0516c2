"""`JOIN t FOR SYSTEM_TIME AS OF time [AS alias] ON …`: which version of a row, of a table with a history.

Spark's grammar has the clause for times that are constants alone. Of a column it says the same as a condition
of the join: that the time lies in what a version is of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import TokenType

from headwater.project.cdc.said import valid_at
from headwater.project.sql.reader import Reader

# What ends the condition of a join, where it stands outside of parentheses.
_BEHIND = {
    *("JOIN", "INNER", "CROSS", "FULL", "SEMI", "ANTI", "NATURAL", "LATERAL", "WHERE", "GROUP", "HAVING"),
    *("ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW", "QUALIFY", "PIVOT", "UNPIVOT"),
    *("UNION", "EXCEPT", "INTERSECT", "MINUS", "ASOF"),
}
_SIDES = {"LEFT", "RIGHT"}  # functions, too
_ON = "write JOIN table FOR SYSTEM_TIME AS OF column AS alias ON condition"


@dataclass(frozen=True)
class AsOf:
    """A clause: what is to be overwritten, and what is to be written beside the condition.

    Attributes:
        span: `[start, stop)` of the text.
        begins, ends: where the condition does.
        condition: that holds of the version alone.
    """

    span: tuple[int, int]
    begins: int
    ends: int
    condition: str


class Clauses(Reader):
    """Those of a statement."""

    def read(self) -> Iterator[AsOf]:
        """Each of them, in order.

        Raises:
            Refused: one is unfinished, or stands at what is no join.
        """
        for at in range(len(self._tokens)):
            if self._words(at, 3) == ("SYSTEM_TIME", "AS", "OF") and not self._is_constant(at + 3):
                yield self._one(at)

    def _is_constant(self, at: int) -> bool:
        """Whether the time is none of a row: Spark knows that."""
        return at >= len(self._tokens) or self._tokens[at].token_type in (TokenType.STRING, TokenType.NUMBER)

    def _one(self, at: int) -> AsOf:
        first = at - (self._word(at - 1) == "FOR")
        behind = self._behind(at + 3) if self._opens(at + 3) else self._behind_name(at + 3)
        if self._opens(behind):
            behind = self._behind(behind)
        time = self._text[self._tokens[at + 3].start : self._tokens[behind - 1].end + 1]
        on = behind + (self._word(behind) == "AS")
        alias = self._before(first)
        if self._word(on) not in ("ON", "USING"):
            alias, on = self._tokens[on].text if on < len(self._tokens) else "", on + 1
        if self._word(on) != "ON":
            raise self._refused(at, "FOR SYSTEM_TIME AS OF stands at no join with ON", _ON)
        end = self._end(on + 1)
        span = self._tokens[first].start, self._tokens[behind - 1].end + 1
        begins, ends = self._tokens[on].end + 1, self._tokens[end - 1].end + 1
        return AsOf(span, begins, ends, valid_at(time, alias))

    def _before(self, at: int) -> str:
        """The last part of the name that ends before a place."""
        return self._tokens[at - 1].text if at else ""

    def _end(self, at: int) -> int:
        """The place behind the condition that begins at a place."""
        while at < len(self._tokens):
            word, token = self._word(at), self._tokens[at]
            if word in _BEHIND or (word in _SIDES and not self._opens(at + 1)):
                return at
            if token.token_type in (TokenType.R_PAREN, TokenType.COMMA):
                return at
            at = self._behind(at)
        return at


def written(text: str, clauses: list[AsOf]) -> str:
    """A text in which the conditions stand; what they replace is overwritten by `clauses.taken`."""
    parts = [(each.begins, f" ({each.condition}) AND (") for each in clauses]
    for at, part in sorted([*parts, *((each.ends, ")") for each in clauses)], reverse=True):
        text = text[:at] + part + text[at:]
    return text
