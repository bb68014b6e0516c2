"""What a person may have meant who wrote a name that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

MANY = 12  # names, of which more are not read


def hint(name: str, known: Sequence[str]) -> str:
    """What to write instead of a table's name: those like it, else all, or where they are listed."""
    near = [each for each in known if each.endswith(f".{name}")] or difflib.get_close_matches(name, known)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known: {', '.join(known) or 'none'}" if len(known) <= MANY else "headwater ls lists them"
