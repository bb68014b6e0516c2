"""`headwater produce NAME`: send a generator's records to the project's Kafka."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated

import typer

from headwater.cli import completion
from headwater.cli.options import Env, Project
from headwater.cli.printing import print_json
from headwater.common import interrupts, times
from headwater.errors import BrokerError

Share = Annotated[float, typer.Option(min=0, max=1, metavar="FRACTION")]


def produce(
    name: Annotated[
        str,
        typer.Argument(
            autocompletion=completion.generators, help="A file of the project: generators/NAME.py."
        ),
    ],
    project: Project = None,
    env: Env = "local",
    rate: Annotated[float, typer.Option(min=0, help="Records a second; 0: as fast as they go.")] = 0,
    count: Annotated[int | None, typer.Option(min=0, help="End after so many (default: go on).")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same records.")] = 0,
    start: Annotated[
        str | None,
        typer.Option(
            help="Event time of the first record, ISO 8601, UTC unless it names a zone; each next one is "
            "100 ms later (default: the wall clock with --rate, else 2026-01-01T00:00:00Z)."
        ),
    ] = None,
    late: Share = 0,
    duplicate: Share = 0,
    malformed: Share = 0,
    future: Share = 0,
    invalid: Share = 0,
    bad: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="FRACTION",
            help="So much of each kind: every malformed one, every invalid one, and future.",
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the ledger.")] = False,
) -> None:
    """Send a generator's records to Kafka and say how many; Ctrl-C ends it with nothing lost."""
    from headwater.connectors import kafka
    from headwater.connectors import produce as producing
    from headwater.connectors.kafka import broker
    from headwater.project import conf, paths

    first = _instant(start)
    faults = producing.Faults(
        late=late, duplicate=duplicate, malformed=malformed, future=future, invalid=invalid, each=bad
    )
    root = paths.find_project(project)
    settings = conf.load(root, env)
    generator = producing.load_generator(root, name)
    records = generator.records(seed=seed, faults=faults, clock=producing.event_clock(rate=rate, start=first))
    with _stop_on_signals() as stop:
        client = kafka.client_options(settings, kafka.ensure_running(root, settings))
        for outcome in broker.create_topics(client, generator.topics):
            if outcome.differs:
                raise BrokerError(
                    outcome.differs,
                    code="TOPIC_DIFFERS",
                    file=f"generators/{name}.py",
                    hint=f"delete the topic or change generators/{name}.py",
                )
        sent = producing.run_producer(records, client=client, rate=rate, count=count, stop=stop)
    if as_json:
        timing = {"seconds": round(sent.seconds, 3), "rate": round(sent.rate, 1)}
        print_json({"generator": name, "seed": seed, **timing, "ledger": sent.ledger.as_dict()})
    else:
        typer.echo(f"{name}: {sent.records:,} records in {sent.seconds:.1f} s, {sent.rate:,.0f}/s")


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return times.parse(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not ISO 8601; e.g. 2026-01-01T00:00:00Z", param_hint="--start"
        ) from None


@contextmanager
def _stop_on_signals() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM ask to stop; a second one ends the process at once."""
    asked = threading.Event()
    before = interrupts.ask(asked.set)
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
