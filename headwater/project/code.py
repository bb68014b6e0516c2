"""A function's code, of all that its text is: what its rows follow from."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def of(text: str) -> str:
    """The text of a function without what makes no rows: decorators, its docstring, comments, empty lines.

    Args:
        text: as `inspect.getsource` has it. What is no function, as a lambda's line, stays as it is.
    """
    text = textwrap.dedent(text)
    try:
        function, *more = ast.parse(text).body
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return text
    if more or not isinstance(function, ast.FunctionDef):
        return text
    code = [token for token in tokens if token.type not in _NO_CODE and token.start[0] >= function.lineno]
    if ast.get_docstring(function) is not None:
        said = function.body[0].lineno
        whole = next(token for token in code if token.start[0] == said and token.type == tokenize.STRING)
        beside = [token for token in code if said in (token.start[0], token.end[0]) and token is not whole]
        code = code if beside else [token for token in code if token is not whole]
    lines = text.splitlines()
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    rows = {row for token in code for row in range(token.start[0], token.end[0] + 1)}
    return "\n".join(lines[row - 1] for row in sorted(rows))
