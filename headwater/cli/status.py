"""`headwater status`: where every table stands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_broken, print_json, when
from headwater.common import listings

if TYPE_CHECKING:
    from headwater.project import load
    from headwater.query.inspect.status import Standing

_RARE = {"files amiss": "amiss", "gaps": "gaps"}  # columns that are shown where there is something in them


def status(project: Project = None, env: Env = "local", as_json: AsJson = False) -> None:
    """Show where every table stands: who writes it, how far it is behind, its watermark, what it keeps."""
    from headwater.project.load import load_project
    from headwater.query.inspect.status import standings

    loaded = load_project(project, env)
    found = standings(loaded)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    titles = ["table", "written by", "rows behind", "newest record", "last commit", "watermark", "keeps"]
    views = [one for one in found if one.batch is not None]
    rare = {title: name for title, name in _RARE.items() if any(getattr(one, name) for one in found)}
    listing = listings.Listing(
        [*titles, *rare],
        right=[2, *range(6, 7 + len(rare))],
        whole=[0],
        prose=[1, 3, 4, 5],
        spare=[1, 5, 6],
    )
    for one in found:
        listing.row(
            one.table,
            f"process {one.writer}" if one.writer else "",
            _behind(loaded, one),
            *(when(at) if at else "" for at in (one.newest, one.committed, one.watermark)),
            "" if one.keys is None else f"{one.keys:,}",
            *(f"{getattr(one, name):,}" if getattr(one, name) else "" for name in rare.values()),
        )
    listings.show([listing], sys.stdout)
    if any(one.behind is None and one.table in loaded.topics and not one.error for one in found):
        start = "; start it: headwater kafka start" if loaded.conf.kafka == "embedded" else ""
        typer.echo(f"\n? is not known, since Kafka does not answer{start}")
    print_broken(one.error for one in found)
    print_broken(f"{one.table} {one.failed}" for one in found if one.failed)
    if views:
        print()
        listings.show([_batches(views)], sys.stdout)
    for one in found:
        if one.amiss:
            where = "WHERE outcome IN ('unreadable', 'changed')"
            typer.echo(f'\nheadwater query "SELECT path, reason, noted_at FROM {one.table}__files {where}"')
        if one.gaps:
            typer.echo(f'\nheadwater query "FROM {one.table}__gaps"')


def _batches(views: Sequence[Standing]) -> listings.Listing:
    """What the newest batch of each view did."""
    titles = ["newest batch of", "rows read", "keys touched", "rows written"]
    listing = listings.Listing(titles, right=[1, 2, 3], whole=[0])
    for one in views:
        assert one.batch is not None
        touched = "all" if one.batch["keys_touched"] is None else f"{one.batch['keys_touched']:,}"
        counts = (one.batch["rows_read"], one.batch["rows_written"])
        read, written = ("" if count is None else f"{count:,}" for count in counts)
        listing.row(one.table, read, touched, written)
    return listing


def _behind(project: load.Project, one: Standing) -> str:
    """How far a table is behind; nothing where that means nothing: a view, or one that is not written."""
    if one.unread is not None:
        return f"{one.unread:,} files"
    if one.behind is not None:
        return f"{one.behind:,}"
    table = project.tables.get(one.table)
    return "" if table is not None and (table.view or one.committed is None) else "?"
