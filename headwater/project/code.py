"""A function's code, of all that its text is: what its rows follow from."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import threading
import tokenize
from functools import lru_cache
from itertools import dropwhile
from typing import Any

# `ast` counts how deep it is for all threads of a process at once (python/cpython#106905).
_PARSING = threading.Lock()
_TRIES = 10
_BESIDE = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def text_of(function: Any) -> str:
    """The code of a function; see `of`."""
    return of(inspect.getsource(function))


def form_of(function: Any) -> str:
    """The code of a function, the same in whatever layout; see `form`."""
    return form(text_of(function))


@lru_cache(maxsize=1_000)
def form(text: str) -> str:
    """The same text for all texts of a function that differ in layout alone: in lines, brackets that change
    nothing, and quotes. What is no function stays as it is.

    It may be another one in another version of Python.
    """
    for _ in range(_TRIES):
        try:
            with _PARSING:
                return ast.unparse(ast.parse(text))
        except SystemError:
            continue  # someone else's thread parsed, too
        except (SyntaxError, RecursionError, ValueError):
            break
    return text


def of(text: str) -> str:
    """The text of a function without what makes no rows: decorators, its docstring, comments, empty lines.

    Args:
        text: as `inspect.getsource` has it. What is no function, as a lambda's line, stays as it is.
    """
    text = textwrap.dedent(text)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError):
        return text
    function = list(dropwhile(lambda statement: statement[0].string == "@", _statements(tokens)))
    if not function or function[0][0].string != "def" or any(each[0].start[1] == 0 for each in function[1:]):
        return text
    head, *body = function
    if body and _is_text(body[0]):
        del body[0]
    lines = text.splitlines()
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    code = [token for statement in (head, *body) for token in statement]
    rows = {row for token in code for row in range(token.start[0], token.end[0] + 1)}
    return "\n".join(lines[row - 1] for row in sorted(rows))


def _statements(tokens: list[tokenize.TokenInfo]) -> list[list[tokenize.TokenInfo]]:
    """The tokens of each statement, or of what heads a block: all before the end of a logical line."""
    found: list[list[tokenize.TokenInfo]] = [[]]
    for token in tokens:
        if token.type == tokenize.NEWLINE:
            found.append([])
        elif token.type not in _BESIDE:
            found[-1].append(token)
    return [statement for statement in found if statement]


def _is_text(statement: list[tokenize.TokenInfo]) -> bool:
    """Whether a function's first statement is its docstring."""
    return all(token.type == tokenize.STRING for token in statement)
