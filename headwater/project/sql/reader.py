"""A statement's tokens, asked for by their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from headwater.project.sql.said import Refused
from headwater.project.sql.statements import closing, line_of, word

# What ends the condition of a join, where it stands outside of parentheses.
_BEHIND = {
    *("JOIN", "INNER", "CROSS", "FULL", "SEMI", "ANTI", "NATURAL", "LATERAL", "WHERE", "GROUP", "HAVING"),
    *("ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW", "QUALIFY", "PIVOT", "UNPIVOT"),
    *("UNION", "EXCEPT", "INTERSECT", "MINUS", "ASOF"),
}
_SIDES = {"LEFT", "RIGHT"}  # functions, too
_AMOUNTS = {TokenType.NUMBER, TokenType.STRING}


@dataclass(frozen=True)
class Rewriting:
    """A clause that Spark's parser does not know, in its words.

    Attributes:
        spans: what is overwritten, `[start, stop)` of the text.
        inserted: (before which character, what is written there).
    """

    spans: list[tuple[int, int]]
    inserted: list[tuple[int, str]]


def rewritten(text: str, clauses: Sequence[Rewriting]) -> str:
    """A text with what clauses insert, on the same lines."""
    for at, part in sorted((part for each in clauses for part in each.inserted), key=_place, reverse=True):
        text = text[:at] + part + text[at:]
    return text


def _place(part: tuple[int, str]) -> int:
    return part[0]


class Reader:
    """What reads a statement.

    Args:
        text: the file's.
        tokens: the statement's.
    """

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self._text, self._tokens = text, tokens

    def _word(self, at: int) -> str:
        """The keyword at a place; "": there is none."""
        return word(self._tokens, at)

    def _words(self, at: int, many: int) -> tuple[str, ...]:
        """The keywords from a place on."""
        return tuple(self._word(at + each) for each in range(many))

    def _opens(self, at: int) -> bool:
        """Whether a parenthesis opens at a place."""
        return at < len(self._tokens) and self._tokens[at].token_type == TokenType.L_PAREN

    def _behind(self, at: int) -> int:
        """The place behind what begins at a place: a token, or all that a parenthesis encloses."""
        return closing(self._tokens, at) + 1 if self._opens(at) else at + 1

    def _find(self, keyword: str, at: int) -> int:
        """The next place of a keyword outside of parentheses; behind the last token: nowhere."""
        while at < len(self._tokens) and self._word(at) != keyword:
            at = self._behind(at)
        return min(at, len(self._tokens))

    def _behind_name(self, at: int) -> int:
        """The place behind the name that begins at a place."""
        at += 1
        while at < len(self._tokens) and self._tokens[at].token_type == TokenType.DOT:
            at += 2
        return at

    def _name(self, at: int) -> str:
        """The name that begins at a place; "": the statement ends there."""
        return "".join(token.text for token in self._tokens[at : self._behind_name(at)])

    def _behind_interval(self, at: int) -> int:
        """The place behind the amounts and units (`1 HOUR 30 MINUTES`) that begin at a place."""
        while at + 1 < len(self._tokens) and self._tokens[at].token_type in _AMOUNTS:
            at += 4 if self._word(at + 2) == "TO" else 2  # '1:30' HOUR TO MINUTE
        return at

    def _condition_end(self, at: int) -> int:
        """The place behind the condition of a join that begins at a place."""
        while at < len(self._tokens):
            word, token = self._word(at), self._tokens[at]
            if word in _BEHIND or (word in _SIDES and not self._opens(at + 1)):
                return at
            if token.token_type in (TokenType.R_PAREN, TokenType.COMMA):
                return at
            at = self._behind(at)
        return at

    def _line(self, at: int) -> int:
        """The line of a place, or of the last token before it."""
        return line_of(self._text, self._tokens[min(at, len(self._tokens) - 1)].start)

    def _refused(self, at: int, message: str, hint: str) -> Refused:
        return Refused(message, "STATEMENT_NOT_SUPPORTED", line=self._line(at), hint=hint)
