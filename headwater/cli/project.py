"""`headwater ls`, `describe` and `graph`: what a project has, and what its lake holds."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_broken, print_json, when
from headwater.common import listings
from headwater.storage.names import FILES

if TYPE_CHECKING:
    from headwater.query.inspect.describe import Description


def ls(project: Project = None, env: Env = "local", as_json: AsJson = False) -> None:
    """List the tables, alerts and sinks of the project and of its lake."""
    from headwater.project.load import load_project
    from headwater.query import inspect

    loaded = load_project(project, env)
    lines = inspect.tables(loaded)
    alerts = [{"name": a.name, "source": a.source, "topic": a.topic} for a in loaded.alerts.values()]
    sinks = [{"name": name, "table": s.table, "to": s.target, "on": s.on} for name, s in loaded.sinks.items()]
    if as_json:
        listed = [{"layer": line.layer, **asdict(line)} for line in lines]
        print_json({"tables": listed, "alerts": alerts, "sinks": sinks})
        return
    columns = ["table", "kind", "source", "rows", "version", "last commit"]
    odd = any(line.status != "written" for line in lines)
    listing = listings.Listing(
        [*columns, "state"] if odd else columns, right=[3, 4], whole=[0, 1], prose=[2, 5, 6], spare=[4, 5]
    )
    for line in lines:
        held = line.state
        numbers = (_count(held.rows), str(held.version), when(held.last_commit)) if held else ("", "", "")
        status = [Text("" if line.status == "written" else line.status, style="yellow")] if odd else []
        listing.row(line.name, line.kind, line.source, *numbers, *status)
    parts: list[RenderableType] = [listing]
    for title, found in (("alert", alerts), ("sink", sinks)):
        if found:
            others = listings.Listing([title, *list(found[0])[1:]], whole=[0])
            for one in found:
                others.row(*one.values())
            parts += ["", others]
    listings.show(parts, sys.stdout)
    print_broken(line.error for line in lines)


def describe(
    table: Annotated[str, typer.Argument(autocompletion=completion.tables, help="A table, as ls names it.")],
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Say all that is known of one table: its definition, its columns, what it holds."""
    from headwater.project.load import load_project
    from headwater.query.inspect import describe as describing

    found = describing.describe(load_project(project, env), table)
    if as_json:
        print_json(asdict(found))
        return
    facts = Table.grid(padding=(0, 3, 0, 0))
    for name, value in _facts(found):
        facts.add_row(Text(name, style="dim"), Text(value))
    columns = listings.Listing(["column", "type"], whole=[0])
    for name, kind in found.columns.items():
        columns.row(Text(name), Text(kind))
    title = Text.assemble((found.name, "bold"), (f"  {found.kind}", "dim"))
    comment = [Text(found.comment)] if found.comment else []
    listings.show([title, *comment, "", facts, "", columns], sys.stdout)


def graph(
    form: Annotated[
        Literal["terminal", "mermaid"], typer.Option("--format", help="How to draw it.")
    ] = "terminal",
    project: Project = None,
    env: Env = "local",
) -> None:
    """Draw what reads what, from Kafka's topics and files to the last table."""
    from headwater.project.load import load_project
    from headwater.query.inspect import graph as drawing

    loaded = load_project(project, env)
    typer.echo(drawing.mermaid(loaded) if form == "mermaid" else drawing.terminal(loaded))


def _facts(found: Description) -> list[tuple[str, str]]:
    """What to show, in order; what does not apply is left out."""
    facts = [
        ("defined in", found.file or "nothing: the lake has it, the project has not"),
        ("reads", ", ".join(found.sources)),
        ("read by", ", ".join(found.read_by)),
        ("published to", ", ".join(found.published)),
        ("keys", ", ".join(found.keys)),
        ("event time", f"{found.event_time}, delay {found.delay}" if found.event_time else ""),
        ("rows are", _EMIT[found.emit]),
        ("a batch", _batch(found)),
        ("expectations", _expectations(found)),
        ("quarantine", f"{found.quarantine}, {_count(found.quarantined)} rows" if found.quarantine else ""),
        ("late rows", found.late or ""),
    ]
    if found.kind == "reference":
        facts = facts[:3]
    held = found.state
    if held is None:
        return [fact for fact in facts if fact[1]] + (
            [] if found.kind == "reference" else [("holds", "nothing yet")]
        )
    facts += [
        ("holds", f"{_count(held.rows)} rows, {_size(held.bytes)} in {held.files} file{_plural(held.files)}"),
        ("Delta table", _short(held.path)),
        ("generation", str(held.generation)),
        ("version", f"{held.version}, committed {when(held.last_commit)}"),
    ]
    for flow, mine in held.flows.items():
        consumed = "; ".join(_position(name, position) for name, position in mine["consumed"].items())
        facts.append(("last batch", f"{mine['sequence']} of {flow}, which has consumed {consumed}"))
    return [fact for fact in facts if fact[1]]


_EMIT = {
    "update": "changed in place as inputs come",
    "append": "appended",
    "final": "appended, each once, when its time is over",
}


def _expectations(found: Description) -> str:
    if found.kind in ("quarantine", "late", "state", "lookup", "ledger", "gaps", "engine", "unknown"):
        return ""
    return "none" if found.expectations is None else str(found.expectations)


def _batch(found: Description) -> str:
    limits = found.limits
    if not limits:
        return ""
    tasks, every = (
        f"{limits['parallelism']} tasks",
        f", every {limits['trigger']}" if limits["trigger"] else "",
    )
    if limits["max_rows_per_batch"] is None:
        return f"all that has changed, {tasks}{every}"
    rows = f"at most {limits['max_rows_per_batch']:,} rows"
    if found.kind == "topic":
        return f"{rows}, {tasks}{every}"
    if found.kind == "files":
        return f"{rows} or {_size(limits['max_bytes_per_batch'])}{every}"
    return f"{rows} or {_size(limits['max_bytes_per_batch'])}, {tasks}{every}"


def _position(name: str, position: dict[str, Any]) -> str:
    if "version" not in position:
        offsets = " ".join(f"{partition}:{offset}" for partition, offset in position.items())
        return f"{name if name.startswith(FILES) else f'kafka:{name}'} to offsets {offsets}"
    part = f" and {position['files']} files of the next" if position.get("files") else ""
    return f"{name} to version {position['version']}{part}"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _plural(number: int) -> str:
    return "" if number == 1 else "s"


def _size(count: float) -> str:
    units = iter(("B", "KiB", "MiB", "GiB"))
    unit = next(units)
    while count >= 1024 and unit != "GiB":
        count, unit = count / 1024, next(units)
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
