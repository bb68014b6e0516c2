"""`headwater status`: where every table stands."""

from __future__ import annotations

import sys
from dataclasses import asdict

from headwater import tables
from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json, when


def status(project: Project = None, env: Env = "local", as_json: AsJson = False) -> None:
    """Show where every table stands: who writes it, how far it is behind, its watermark, what it keeps."""
    from headwater import project as projects
    from headwater.status import standings

    found = standings(projects.load(project, env))
    if as_json:
        print_json([asdict(one) for one in found])
        return
    titles = ["table", "written by", "rows behind", "newest record", "last commit", "watermark", "keeps"]
    listing = tables.table(titles, right=[2, 6])
    listing.columns[0].no_wrap = True
    for one in found:
        listing.add_row(
            one.table,
            f"process {one.writer}" if one.writer else "",
            "?" if one.behind is None else f"{one.behind:,}",
            *(when(at) if at else "" for at in (one.newest, one.committed, one.watermark)),
            "" if one.keys is None else f"{one.keys:,}",
        )
    tables.show([listing], sys.stdout)
