"""`JOIN t FOR SYSTEM_TIME AS OF time [AS alias] ON …`: which version of a row, of a table with a history.

Spark's grammar has the clause for times that are constants alone. Of a column it says the same as a condition
of the join: that the time lies in what a version is of.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import TokenType

from headwater.project.cdc.said import valid_at
from headwater.project.sql.reader import Reader, Rewriting

_ON = (
    "write JOIN table FOR SYSTEM_TIME AS OF column AS alias ON condition; what is no column in parentheses: "
    "AS OF (a.time - INTERVAL 1 HOUR)"
)


class Clauses(Reader):
    """Those of a statement."""

    def read(self) -> Iterator[Rewriting]:
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

    def _one(self, at: int) -> Rewriting:
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
        end = self._condition_end(on + 1)
        span = self._tokens[first].start, self._tokens[behind - 1].end + 1
        begins, ends = self._tokens[on].end + 1, self._tokens[end - 1].end + 1
        return Rewriting([span], [(begins, f" ({valid_at(time, alias)}) AND ("), (ends, ")")])

    def _before(self, at: int) -> str:
        """The last part of the name that ends before a place."""
        return self._tokens[at - 1].text if at else ""
