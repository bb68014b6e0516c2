"""What a person may have meant who wrote a name that there is not."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

MANY = 12  # names, of which more are not read


def hint(name: str, known: Sequence[str], *, listed: bool = True) -> str:
    """What to write instead of a name: those like it, else all, or where they are listed.

    Args:
        name: what was written.
        known: what there is.
        listed: whether `headwater ls` lists them: tables of a project that is right.
    """
    near = [each for each in known if each.endswith(f".{name}")] or difflib.get_close_matches(name, known)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if listed and len(known) > MANY:
        return "headwater ls lists them"
    return f"known: {', '.join(known) or 'none'}"
