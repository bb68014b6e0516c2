"""`headwater lateness`: how late rows are, and what each watermark delay would have cost."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.bar import Bar
from rich.console import RenderableType
from rich.text import Text

from headwater.cli import completion
from headwater.cli.options import Env, Project
from headwater.cli.printing import print_json
from headwater.common import durations, listings

if TYPE_CHECKING:
    from headwater.query.lateness.measured import Measured, Spread, View

_NINE = 8  # characters of a bar


def lateness(
    table: Annotated[
        str, typer.Argument(autocompletion=completion.tables, help="A silver table, as ls names it.")
    ],
    event_time: Annotated[
        str | None, typer.Option(help="Column of event time (default: what is declared of it).")
    ] = None,
    by: Annotated[
        Literal["partition", "table"], typer.Option(help="A line for each partition, or one for all.")
    ] = "partition",
    window: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Judge by windows of this size, such as 5m.")
    ] = None,
    last: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Judge only rows ingested in the last 24h, 7d, …")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the chart to FILE.svg or FILE.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; times in seconds.")] = False,
    project: Project = None,
    env: Env = "local",
) -> None:
    """Show how late the rows of a table are, and what each watermark delay would have cost."""
    from headwater.project.load import load_project
    from headwater.query import lateness as late
    from headwater.query.lateness import chart as lateness_chart

    found = late.measure(
        load_project(project, env),
        table,
        event_time=event_time,
        window=_span(window, "--window"),
        last=_span(last, "--last"),
    )
    if chart is not None:
        lateness_chart.write(found, chart)
    if as_json:
        print_json(_json(found))
    else:
        listings.show(_parts(found, by), sys.stdout)


def _span(text: str | None, option: str) -> timedelta | None:
    if text is None:
        return None
    try:
        span = durations.parse(text)
    except ValueError as e:
        raise typer.BadParameter(str(e), param_hint=option) from None
    if not span:
        raise typer.BadParameter("write a span above 0", param_hint=option)
    return span


def _parts(found: Measured, by: str) -> list[RenderableType]:
    since = f", of those ingested since {found.since:%Y-%m-%d %H:%M:%SZ}" if found.since else ""
    facts = f"{found.all.rows:,} rows by {found.event_time}{since}"
    apart = f"{found.without_time:,} without event time and {found.future:,} from the future are left out"
    parts: list[RenderableType] = [Text.assemble((found.table, "bold"), f"  {facts}"), Text(apart), ""]
    parts.append(_spreads(found, by))
    for view in found.views:
        parts += ["", *_view(view)]
    return parts + [Text(note, style="yellow") for note in found.notes]


def _spreads(found: Measured, by: str) -> RenderableType:
    listing = listings.Listing(
        ["partition", "rows", "out of order", "median", "p95", "p99", "max"], right=[*range(1, 7)]
    )
    lines = [(f"{s.cluster}/{s.topic}/{s.partition}", s) for s in found.partitions]
    for name, s in [*(lines if by == "partition" else []), ("all", found.all)]:
        times = (_about(time) for time in (s.median, s.p95, s.p99, s.max))
        listing.row(Text(name), f"{s.rows:,}", f"{s.out_of_order:,}", *times)
    return listing


def _view(view: View) -> list[RenderableType]:
    """What each delay costs, with bars of completeness; and the smallest delay for each target."""
    from headwater.query.lateness import TARGETS
    from headwater.query.lateness.chart import LABELS, height, title

    final = "final after its end" if view.window else "final after"
    scale = "".join(f"{label:>{_NINE}}" for label in LABELS)
    listing = listings.Listing(
        ["delay", "rows too late", "complete", final, scale, ""], right=[0, 1, 2, 3], whole=[4], prose=[5]
    )
    width = _NINE * len(LABELS)
    for choice in view.choices:
        delay = durations.text(choice.delay)
        listing.row(
            delay,
            f"{choice.late:,}",
            _percent(choice.completeness),
            f"+{delay}",
            Bar(len(LABELS), 0, height(choice.completeness), width=width),
            Text(f"declared by {', '.join(choice.declared_by)}" if choice.declared_by else "", "green"),
        )
    advice = []
    for target in TARGETS:
        best = view.smallest(target)
        assert best is not None  # the last choice keeps every row
        advice.append(Text(f"at least {target:.2%} kept: a delay of {durations.text(best.delay)}"))
    return [Text(title(view), style="bold"), listing, *advice]


def _about(microseconds: int) -> str:
    """A lateness as people compare it: three digits or so."""
    if 1_000_000 < microseconds < 60_000_000:
        return f"{microseconds / 1e6:.1f}s"
    return durations.text(microseconds, parts=1 if microseconds < 1_000_000 else 2)


def _percent(share: float) -> str:
    """A share that says 100% only of all."""
    return "100%" if share == 1 else f"{min(share, 0.999999):.4%}"


def _json(found: Measured) -> dict[str, Any]:
    from headwater.query.lateness import TARGETS

    return {
        "table": found.table,
        "event_time": found.event_time,
        "since": found.since,
        "rows": found.all.rows,
        "without_event_time": found.without_time,
        "future": found.future,
        "all": _seconds(found.all),
        "partitions": [_seconds(spread) for spread in found.partitions],
        "views": [
            {
                "tables": view.tables,
                "window_s": view.window.size / 1e6 if view.window else None,
                "slide_s": view.window.slide / 1e6 if view.window else None,
                "delays": [
                    {
                        "delay_s": choice.delay / 1e6,
                        "rows_late": choice.late,
                        "completeness": choice.completeness,
                        "declared_by": choice.declared_by,
                    }
                    for choice in view.choices
                ],
                "recommended_s": {
                    f"{target:.2%}": best.delay / 1e6 if (best := view.smallest(target)) else None
                    for target in TARGETS
                },
            }
            for view in found.views
        ],
        "notes": found.notes,
    }


def _seconds(spread: Spread) -> dict[str, Any]:
    values = asdict(spread)
    times = {name: values.pop(name) / 1e6 for name in ("median", "p95", "p99", "max")}
    return {**values, **{f"{name}_s": time for name, time in times.items()}}
