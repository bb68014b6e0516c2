"""`headwater quarantine`: look at the records that tables could not take, put them back, or give them up."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from headwater.cli import completion
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json, when
from headwater.common import listings

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.flows.replay import Resolution

app = typer.Typer(no_args_is_help=True, help=__doc__)

TableName = Annotated[
    str, typer.Argument(autocompletion=completion.tables, metavar="TABLE", help="Whose quarantine: silver.x")
]
Rule = Annotated[
    str | None, typer.Option("--rule", help="Only records that fail this one, as `ls` names it.")
]


@app.command("ls")
def ls(
    table: Annotated[
        str | None,
        typer.Argument(autocompletion=completion.tables, metavar="TABLE", help="Whose quarantine [all]"),
    ] = None,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """List the quarantines: how many records are open, and which rules they fail."""
    from headwater.project.load import load_project
    from headwater.quality import quarantine
    from headwater.storage.lake import Lake

    loaded = load_project(project, env)
    lake = Lake(loaded.conf.lake)
    if table is not None:
        quarantine.check(loaded, table)
    names = quarantine.tables(loaded) if table is None else [table]
    found = [quarantine.Quarantine(lake, name).summary() for name in names]
    if as_json:
        print_json([asdict(summary) for summary in found])
        return
    listing = listings.Listing(
        ["table", "open", "resolved", "rule", "records", "since"],
        right=[1, 2, 4],
        whole=[0, 3],
        prose=[5],
        spare=[5, 2],
    )
    for summary in found:
        resolved = ", ".join(f"{n:,} {outcome}" for outcome, n in summary.outcomes.items()) or "0"
        first = [summary.table, f"{summary.open:,}", resolved]
        since = when(summary.first) if summary.first else ""
        rules = list(summary.rules.items()) or [("", 0)]
        for at, (rule, count) in enumerate(rules):
            own = first if at == 0 else ["", "", ""]
            listing.row(*own, Text(rule), f"{count:,}" if rule else "", since if at == 0 else "")
    listings.show([listing], sys.stdout)


@app.command("show")
def show(
    table: TableName,
    rule: Rule = None,
    limit: Annotated[int, typer.Option("--n", "-n", min=1, help="At most so many records.")] = 20,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Those that are not open any more, and what became of them.")
    ] = False,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Show quarantined records: where each stood in Kafka, why it is here, and the record itself."""
    from headwater.project.load import load_project
    from headwater.quality import quarantine
    from headwater.storage.lake import Lake

    loaded = load_project(project, env)
    quarantine.check(loaded, table)
    held = quarantine.Quarantine(Lake(loaded.conf.lake), table)
    rows = list(islice(_rows(held.records(rule, resolved=resolved)), limit))
    if resolved:
        became = {_place(row): row for row in held.resolved().to_pylist()}
        rows = [{**row, "resolved": became[_place(row)]} for row in rows]
    if as_json:
        print_json(rows)
        return
    columns = ["record", "quarantined", "reason", *(["became"] if resolved else []), "value"]
    listing = listings.Listing(columns, whole=[0], prose=[*range(1, len(columns) - 1)])
    for row in rows:
        at = f"{row['topic']} {row['partition']}:{row['offset']}"
        became_of = [_became(row["resolved"])] if resolved else []
        value = "NULL" if row["value"] is None else row["value"]
        cells = [at, when(row["quarantined_at"]), row["reason"], *became_of, value]
        listing.row(*map(Text, cells))
    way = f"mend the definition, the suite or the data, then: headwater quarantine replay {table}"
    below = [Text(way, style="dim")] if rows and not resolved else []
    listings.show([listing, *below], sys.stdout)


@app.command("replay")
def replay(
    table: TableName, rule: Rule = None, project: Project = None, env: Env = "local", as_json: AsJson = False
) -> None:
    """Put open records that pass now into the table, once each; what still fails stays."""
    _resolve("replay", table, rule, None, project, env, as_json)


@app.command("discard")
def discard(
    table: TableName,
    why: Annotated[str, typer.Option("--why", help="The reason; it is kept with the records.")],
    rule: Rule = None,
    project: Project = None,
    env: Env = "local",
    as_json: AsJson = False,
) -> None:
    """Give open records up: they stay readable, and no replay takes them."""
    _resolve("discard", table, rule, why, project, env, as_json)


def _resolve(
    action: Literal["replay", "discard"],
    table: str,
    rule: str | None,
    why: str | None,
    project: Any,
    env: str,
    as_json: bool,
) -> None:
    from headwater.operations import replay as resolve
    from headwater.project.load import load_project

    done = resolve.resolve(load_project(project, env), table, action, rule=rule, why=why)
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(_said(table, action, done))


def _said(table: str, action: str, done: Resolution) -> str:
    if action == "discard":
        return f"{table}: {done.discarded:,} records discarded"
    parts = [f"{done.replayed:,} records replayed ({done.rows:,} rows)"]
    if done.dropped:
        parts.append(f"{done.dropped:,} dropped")
    if done.failing:
        rules = ", ".join(f"{rule}: {count:,}" for rule, count in done.failing.items())
        parts.append(f"still failing: {rules}")
    if done.beside:
        parts.append(f"{done.beside:,} left, since other rows of theirs are in the table already")
    return f"{table}: {'; '.join(parts)}"


def _rows(batches: Any) -> Any:
    from headwater.quality.quarantine import raw_record

    batch: pa.Table
    for batch in batches:
        yield from map(raw_record, batch.to_pylist())


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    from headwater.storage.places import place_of

    return place_of(row)


def _became(resolved: dict[str, Any]) -> str:
    why = f": {resolved['why']}" if resolved["why"] else ""
    return f"{resolved['outcome']} {when(resolved['resolved_at'])}{why}"
