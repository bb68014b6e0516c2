"""A statement's tokens, asked for by their places."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

from headwater.project.sql.said import Refused
from headwater.project.sql.statements import closing, line_of, word


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

    def _line(self, at: int) -> int:
        """The line of a place, or of the last token before it."""
        return line_of(self._text, self._tokens[min(at, len(self._tokens) - 1)].start)

    def _refused(self, at: int, message: str, hint: str) -> Refused:
        return Refused(message, "STATEMENT_NOT_SUPPORTED", line=self._line(at), hint=hint)
