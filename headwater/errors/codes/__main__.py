"""Print docs/errors.md."""

from __future__ import annotations

import sys

from headwater.errors.codes import ROOMS

HEAD = """# Errors

What stops Headwater on purpose is one line that names the table, the file and what to do, and ends in a
code: `headwater: … [LEASE_HELD]`. The text may change from version to version; the code stays what it is, and
has one meaning. In Python an error has `code`, `table`, `file` and `hint` (see `headwater/errors/`). With
`--json` a command that fails prints them as one line, too:

```json
{"event": "error", "error": "…", "code": "LEASE_HELD", "table": "silver.cpu", "file": "…/lease", "hint": "…"}
```

and `headwater run --json` adds them to the event of a flow that failed or waits. Of an error that the engine
did not foresee a command says `UNFORESEEN`; such an event has no code. This page is made by
`python -m headwater.errors.codes`.
"""


def page() -> str:
    """The page: per room a table of its codes."""
    parts = [HEAD]
    for title, room in ROOMS.items():
        about = " ".join((room.__doc__ or "").split())
        lines = [
            f"## {title}",
            "",
            about,
            "",
            "| code | error | what is wrong | what to do |",
            "|---|---|---|---|",
        ]
        for code, meaning in room.MEANINGS.items():
            lines.append(f"| `{code}` | {meaning.error} | {meaning.cause} | {meaning.way_out} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
