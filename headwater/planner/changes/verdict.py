"""What a change of a definition means for the table that the former one has made."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from headwater.planner.changes.facts import ANY_LAYOUT, Facts, columns_of
from headwater.project import uses

Effect = Literal["new", "unchanged", "resumes", "rebuild", "loses", "gone", "broken"]

# What may change while a table goes on: rows from here on follow the new definition, those before the former.
_FROM_HERE_ON = {
    "reference tables",
    "tables as they are",
    "delay",
    "allowed lateness",
    "skew",
    "expectations",
    "time to live",
    "files",
    "format",
}
# Of tables whose rows are appended one by one: no row that is there has to change with the next.
_OF_ROWS = {"definition", "fields", "reads", "what it uses"}
# What older versions did not keep: it is compared where it is known.
_SINCE = {"reads", "what it uses", "sequence", ANY_LAYOUT}


@dataclass(frozen=True)
class Verdict:
    """What running with a definition would do to its table.

    Attributes:
        effect: `new`: there is no table yet; `unchanged`; `resumes`: it goes on where it is; `rebuild`: it
            can't; `loses`: rows would be lost; `gone`: the table is there, its definition is not;
            `broken`: its log can't be read.
        why: what has changed, and what comes of it; a line each.
        follows: whether it is so because of a table above alone.
    """

    effect: Effect
    why: tuple[str, ...] = ()
    follows: bool = False


def judge(before: Facts, now: Facts) -> Verdict:
    """What it means that a definition which was one is another now."""
    known = {what for what in {**before, **now} if what not in _SINCE or (what in before and what in now)}
    changed = [what for what in {**before, **now} if what in known and before.get(what) != now.get(what)]
    changed = [what for what in changed if not _is_layout(what, before, now)]
    if "sources" in changed and "reads" in changed:  # which says the same, in order
        changed.remove("reads")
    if "flows" in changed and not _renamed(before.get("flows", ""), now.get("flows", "")):
        changed.remove("flows")  # one that is new begins with the first row of its stream
    if not changed:
        return Verdict("unchanged")
    if "topic" in changed:
        return Verdict(
            "loses",
            (
                f"its rows are of {_origin(before)}, of which what has not been read would be "
                f"lost; give {_origin(now)} a table of its own",
            ),
        )
    if now["kind"] == "view" and before["kind"] == "view" and not {"columns", "keys"} & set(changed):
        return Verdict("resumes", (f"{_listed(changed)} changed: it is computed anew",))
    of_rows = now["kind"] == before["kind"] and now["kind"] in ("rows", "joined rows")
    evolved = _evolved(before, now) if of_rows and "columns" in changed else ()
    free = _FROM_HERE_ON | (_OF_ROWS if of_rows else set()) | ({"columns"} if evolved else set())
    if not ("lookup" in before and "lookup" in now):  # what rows were told stands in columns of its own
        free.add("lookup")
    stuck = [what for what in changed if what not in free]
    if stuck:
        return Verdict("rebuild", tuple(_said(what, before, now) for what in stuck))
    others = [what for what in changed if what != "columns"]
    ahead = f"{_listed(others)} changed: for rows from here on; a rebuild applies it to all" if others else ""
    return Verdict("resumes", (*evolved, *filter(None, [ahead])))


def _is_layout(what: str, before: Facts, now: Facts) -> bool:
    """Whether something that is told otherwise is the same code in another layout."""
    if what == "definition":
        return ANY_LAYOUT in before and before[ANY_LAYOUT] == now.get(ANY_LAYOUT)
    if what == "what it uses":
        return not uses.changed(json.loads(before[what]), json.loads(now[what]))
    return what == ANY_LAYOUT  # told by the definition


def _renamed(before: str, now: str) -> bool:
    """Whether a flow that is gone has read a stream that one with a new name reads."""
    old, new = (
        {flow: {*of.split(", ")} for flow, _, of in (each.partition(": ") for each in text.split("; "))}
        for text in (before, now)
    )
    gone = {stream for flow, of in old.items() if flow not in new for stream in of}
    return any(gone & of for flow, of in new.items() if flow not in old)


def _evolved(before: Facts, now: Facts) -> tuple[str, ...]:
    """What becomes of a table of rows whose columns have changed; empty where it can't go on with them."""
    ours, theirs = columns_of(before["columns"]), columns_of(now["columns"])
    if any(theirs.get(name) != kind for name, kind in ours.items()):
        return ()
    added = [name for name in theirs if name not in ours]
    if not added:
        return ("the order of its columns changed: it keeps the one it has; a rebuild applies it",)
    return tuple(f"column {name} added: NULL in the rows before; a rebuild fills them" for name in added)


def _origin(facts: Facts) -> str:
    return f"the topic {facts['topic']}" if "topic" in facts else f"the files {facts.get('files')}"


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _differing(before: Facts, now: Facts) -> str:
    """How the columns of a table became others, in a line: those that are gone, of another type, new."""
    ours, theirs = columns_of(before.get("columns", "")), columns_of(now.get("columns", ""))
    gone = [f"- {name} {ours[name]}" for name in ours if name not in theirs]
    other = [
        f"{name} {kind} → {theirs[name]}" for name, kind in ours.items() if theirs.get(name, kind) != kind
    ]
    new = [f"+ {name} {theirs[name]}" for name in theirs if name not in ours]
    return ", ".join([*gone, *other, *new])


def _said(what: str, before: Facts, now: Facts) -> str:
    old, new = before.get(what, "none"), now.get(what, "none")
    if what == "columns":
        return f"columns: {_differing(before, now) or 'their order'}"
    if what == "definition":
        return "its query or function changed, and what it has made can't be told apart from what it will"
    if what == "flows":
        return f"flows: {old} → {new}: a flow that is named otherwise would read all of its stream again"
    if what == "what it uses":
        return f"{what}: {', '.join(uses.changed(json.loads(old), json.loads(new)))} changed"
    return f"{what}: {old} → {new}"
