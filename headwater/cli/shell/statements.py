"""Where statements end: at a semicolon that is in no string, name or comment."""

from __future__ import annotations

import re

# What DuckDB reads as one, to its end or to that of the text; and the semicolon.
_PART = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)  # a string with escapes
      | '(?:[^']|'')*(?:'|\Z)
      | "(?:[^"]|"")*(?:"|\Z)
      | \$(\w*)\$.*?(?:\$\1\$|\Z)
      | --[^\n]*
      | /\*.*?(?:\*/|\Z)
      | (?P<end>;)""",
    re.DOTALL | re.VERBOSE,
)


def split(text: str) -> tuple[list[str], str]:
    """The statements of a text, without their semicolons, and what comes after the last one."""
    found, at = [], 0
    for part in _PART.finditer(text):
        if part["end"]:
            found.append(text[at : part.start()].strip())
            at = part.end()
    return [statement for statement in found if statement], text[at:]


def complete(text: str) -> bool:
    """Whether a person who ends a line here has nothing to add: a statement, a command, or nothing."""
    return not text.strip() or text.lstrip().startswith(".") or not split(text)[1].strip()
