"""What of a definition its table's rows follow from, as it is kept beside each generation of the table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.errors import NOWHERE, DamageError
from headwater.planner.outlines import Outline
from headwater.project import code, uses
from headwater.project.definitions import Files, Table, Topic, View
from headwater.project.load import Project
from headwater.project.pipelines import text_of
from headwater.storage import json_file

_QUOTED = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)""", re.S)
_SPACES = re.compile(r"\s*([(),])\s*|\s+")  # which a query has wherever it likes
Facts = dict[str, str]
FILE = "definition.json"
ANY_LAYOUT = "definition in any layout"


def facts(project: Project, name: str, outline: Outline) -> Facts:
    """{what is compared → its value, in words}, of a table; what does not apply is left out."""
    definition = project.definition(name)
    if isinstance(definition, Topic):
        return {"kind": "topic", "topic": definition.topic}
    if isinstance(definition, Files):
        return {"kind": "files", "files": definition.pattern, "format": definition.format}
    found = {
        "kind": outline.kind,
        "sources": ", ".join(project.streams(definition)),
        "tables as they are": ", ".join(definition.snapshots),
        "reference tables": ", ".join(name for name in definition.sources if name in project.references),
        "columns": _columns(outline.stored),
        "keys": ", ".join(outline.keys),
        "definition": _text(definition, code.text_of),
        ANY_LAYOUT: sha256(_text(definition, code.form_of).encode()).hexdigest(),
        "reads": _reads(definition),
        "flows": flows_of({each.name: project.streams(each) for each in _queries(definition)}),
        "what it uses": _uses(definition),
        "sequence": "; ".join(each.cdc.sequence_by for each in _queries(definition) if each.cdc is not None),
        "fields": "" if definition.decode is None else repr(definition.decode),
        "lookup": _lookup(project, definition),
        "event time": definition.event_time or "",
        "delay": definition.delay or "",
        "allowed lateness": definition.allowed_lateness or "",
        "skew": definition.skew if definition.decode else "",
        "expectations": _rules(project, name),
    }
    if definition.event_times:
        times = definition.event_times.items()
        found["event time"] = "; ".join(f"{stream}: {column}" for stream, column in times)
    process = definition.process
    if process is not None:
        found |= {
            "keys": ", ".join(process.keys),
            "state": process.state,
            "time to live": process.ttl or "",
        }
    if process is not None and process.is_named:
        found["keys"] = "; ".join(f"{each.mark} {', '.join(each.keys)}" for each in process.streams)
        found["event time"] = "; ".join(f"{each.mark} {each.event_time}" for each in process.streams)
    return {what: value for what, value in found.items() if value}


def read(folder: Path) -> Facts | None:
    """Those that a flow's folder keeps; None where it keeps none."""
    try:
        return dict(_kept(folder)["facts"])
    except FileNotFoundError:
        return None


def built_by(folder: Path) -> str:
    """The digest of the project that began the generation of a flow's folder; "" where that is not known."""
    try:
        return str(_kept(folder).get("project", ""))
    except FileNotFoundError:
        return ""


def _kept(folder: Path) -> dict[str, Any]:
    name = folder.parent.name
    hint = f"remove it if {name} is defined as when it was made; if not: headwater rebuild {name}"
    return json_file.read(folder / FILE, table=name, hint=hint)


def made_of(project: Project, name: str) -> set[str]:
    """What a definition makes a table of: other tables, or what its records have as their topic."""
    definition = project.definition(name)
    if isinstance(definition, Topic | Files):
        return {definition.topic}
    return {*definition.sources} - project.references.keys()


def ever_made_of(folder: Path) -> set[str] | None:
    """What the generation of a flow's folder was made of, by whichever definition; None where that is not
    known."""
    try:
        kept = _kept(folder)
    except (FileNotFoundError, DamageError):
        return None
    of = kept.get("made of")
    return None if of is None else set(of)


def write(folder: Path, kept: Facts, of: Collection[str] | None, project: str = "") -> None:
    """Keep them, with the versions that they were written by, and the digest of the project; and what the
    table is made of, with what it was made of before. None: that is not known."""
    folder.mkdir(parents=True, exist_ok=True)
    by = {name: version(name) for name in ("headwater", "pyspark", "deltalake")}
    before = ever_made_of(folder) if (folder / FILE).exists() else set()
    every = None if of is None or before is None else sorted({*of, *before})
    said = {"facts": kept, "made of": every, "by": by, "project": project}
    json_file.write(folder / FILE, said, indent=1)


def flows_of(streams: Mapping[str, Iterable[str]]) -> str:
    """Which flow reads which streams, as facts write it."""
    return "; ".join(f"{flow}: {', '.join(sorted(of))}" for flow, of in sorted(streams.items()))


def columns_of(text: str) -> dict[str, str]:
    """{column → type} of a table, as its facts write its columns.

    A name may have spaces; a type has them within brackets only, so the last one outside is before it.
    """
    found, begin, space, depth = {}, 0, 0, 0
    for at, character in enumerate(f"{text},"):
        depth += (character in "<[(") - (character in ">])")
        if character == " " and not depth:
            space = at
        elif character == "," and not depth:
            found[text[begin:space].strip()] = text[space:at].strip()
            begin = at + 1
    return found


def _lookup(project: Project, table: Table) -> str:
    """By what a table's lookup is asked, and what it gives."""
    lookup = project.lookups.get(table.lookup)
    return f"{lookup.name}: {lookup.columns} by {', '.join(lookup.keys)}" if lookup else ""


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _text(table: Table, of_code: Callable[[Any], str]) -> str:
    """What its queries and functions say, of these `of_code`."""
    if table.flows:
        return "\n".join(f"{flow.name}: {_text(flow, of_code)}" for flow in table.flows)
    own = _said(table, of_code) if table.process is None else of_code(table.process.function)
    return "\n".join([own, *(f"{view.name}: {_said(view, of_code)}" for view in table.views)])


def _queries(table: Table) -> tuple[Table, ...]:
    """The table's own query or function, or those of the flows into it."""
    return table.flows or (table,)


def _reads(table: Table) -> str:
    """What each query or function gets, in the order in which it does."""
    named: list[Table | View] = [*table.flows, *table.views]
    return "; ".join([", ".join(table.inputs), *(f"{each.name}: {', '.join(each.inputs)}" for each in named)])


def _uses(table: Table) -> str:
    """{name → digest} of what its functions use, as JSON."""
    queries: list[Table | View] = [*_queries(table), *table.views]
    functions: list[Any] = [each.function for each in queries]
    if table.process is not None:
        functions.append(table.process.function)
    found = dict[str, str]()
    for function in functions:
        found |= uses.of(function)
    return json.dumps(found) if found else ""


def _said(definition: Table | View, of_code: Callable[[Any], str]) -> str:
    if definition.sql is not None:
        parts = _QUOTED.split(definition.sql.text.strip())
        return "".join(part if at % 2 else _SPACES.sub(_apart, part) for at, part in enumerate(parts))
    return text_of(definition.function, of_code)


def _apart(spaces: re.Match[str]) -> str:
    return spaces[1] or " "


def _rules(project: Project, name: str) -> str:
    suite = project.suites.get(name)
    return json.dumps([asdict(replace(rule, where=NOWHERE)) for rule in suite.rules]) if suite else ""
