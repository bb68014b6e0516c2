"""The statements of a file, by sqlglot's tokenizer: it knows strings, quoted names and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot import Token, TokenError, TokenType
from sqlglot.dialects.databricks import Databricks

from headwater.project.sql.said import Refused

_QUOTED = {TokenType.IDENTIFIER, *(kind for kind in TokenType if kind.name.endswith("STRING"))}


def split(text: str) -> Iterator[list[Token]]:
    """The tokens of each statement, without the semicolons between them.

    Raises:
        Refused: a string, a name or a comment does not end, or there is no statement.
    """
    try:
        tokens = Databricks().tokenize(text)
    except TokenError:
        what = "a text, a name in quotes or a comment does not end"
        raise Refused(what, "SQL_INVALID", line=_unended(text), hint="end it") from None
    found: list[Token] = []
    many = 0
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            found.append(token)
        elif found:
            many += 1
            yield found
            found = []
    if found:
        yield found
    elif not many:
        raise Refused("there is no statement", "SQL_INVALID", hint="write one, or remove the file")


def _unended(text: str) -> int:
    """The line, from 1, in which something begins that does not end: that behind the last one before which
    all that begins does."""
    lines = text.splitlines(keepends=True)
    for many in range(len(lines) - 1, 0, -1):
        try:
            Databricks().tokenize("".join(lines[:many]))
        except TokenError:
            continue
        return many + 1
    return 1


def without(text: str, kept: tuple[int, int], taken: Sequence[tuple[int, int]]) -> str:
    """A text whose characters are spaces but for what is `kept` of it and not `taken`, as `[start, stop)`.
    Lines stay where they are."""
    start, stop = kept
    found = _blank(text[:start]) + text[start:stop]
    for start, stop in taken:
        found = found[:start] + _blank(found[start:stop]) + found[stop:]
    return found


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def line_of(text: str, at: int) -> int:
    """The line of a place, from 1."""
    return text.count("\n", 0, at) + 1


def word(tokens: Sequence[Token], at: int) -> str:
    """The token there as a keyword, of several words the first; "": there is none, it is quoted, or a part of
    a name."""
    if not 0 <= at < len(tokens) or tokens[at].token_type in _QUOTED:
        return ""
    if at and tokens[at - 1].token_type == TokenType.DOT:
        return ""
    return tokens[at].text.upper().split()[0]


def closing(tokens: Sequence[Token], at: int) -> int:
    """Where the parenthesis closes that opens at a place; behind the last token: nowhere."""
    depth = 0
    for here in range(at, len(tokens)):
        depth += (tokens[here].token_type == TokenType.L_PAREN) - (
            tokens[here].token_type == TokenType.R_PAREN
        )
        if depth == 0:
            return here
    return len(tokens)
