"""What a change of a definition means for the table that the former one has made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.plan.facts import Facts

Effect = Literal["new", "unchanged", "resumes", "rebuild", "loses", "gone"]

# What may change while a table goes on: rows from here on follow the new definition, those before the former.
_FROM_HERE_ON = {
    "reference tables",
    "delay",
    "allowed lateness",
    "skew",
    "expectations",
    "time to live",
}
# Of tables whose rows are appended one by one: no row that is there has to change with the next.
_OF_ROWS = {"definition", "fields"}


@dataclass(frozen=True)
class Verdict:
    """What running with a definition would do to its table.

    Attributes:
        effect: `new`: there is no table yet; `unchanged`; `resumes`: it goes on where it is; `rebuild`: it
            can't; `loses`: rows would be lost; `gone`: the table is there, its definition is not.
        why: what has changed, and what comes of it; a line each.
        follows: whether it is so because of a table above alone.
    """

    effect: Effect
    why: tuple[str, ...] = ()
    follows: bool = False


def judge(before: Facts, now: Facts) -> Verdict:
    """What it means that a definition which was one is another now."""
    changed = [what for what in {**before, **now} if before.get(what) != now.get(what)]
    if not changed:
        return Verdict("unchanged")
    if "topic" in changed:
        return Verdict(
            "loses",
            (
                f"its rows are of the topic {before.get('topic')}, of which what has not been read would be "
                f"lost; give {now.get('topic')} a table of its own",
            ),
        )
    if now["kind"] == "view" and before["kind"] == "view" and not {"columns", "keys"} & set(changed):
        return Verdict("resumes", (f"{_listed(changed)} changed: it is computed anew",))
    free = _FROM_HERE_ON | (_OF_ROWS if now["kind"] == "rows" and before["kind"] == "rows" else set())
    stuck = [what for what in changed if what not in free]
    if not stuck:
        return Verdict(
            "resumes", (f"{_listed(changed)} changed: for rows from here on; a rebuild applies it to all",)
        )
    return Verdict("rebuild", tuple(_said(what, before, now) for what in stuck))


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _said(what: str, before: Facts, now: Facts) -> str:
    old, new = before.get(what, "none"), now.get(what, "none")
    if what == "columns":
        ours, theirs = (set(text.split(", ")) for text in (old, new))
        moved = [f"- {column}" for column in sorted(ours - theirs)]
        moved += [f"+ {column}" for column in sorted(theirs - ours)]
        return f"columns: {', '.join(moved) or 'their order'}"
    if what == "definition":
        return "its query or function changed, and what it has made can't be told apart from what it will"
    return f"{what}: {old} → {new}"
