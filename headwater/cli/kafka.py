"""Kafka: the project's embedded broker, and a look into topics."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headwater.cli.options import AsJson, Env, Project
from headwater.cli.printing import print_json
from headwater.common import listings
from headwater.errors import BrokerError

if TYPE_CHECKING:
    from headwater.connectors.kafka.broker import EmbeddedBroker
    from headwater.project.conf import KafkaOptions

app = typer.Typer(no_args_is_help=True, help=__doc__)


@app.command()
def start(project: Project = None, env: Env = "local") -> None:
    """Start the embedded broker; it goes on running until `stop`."""
    print(_embedded(project, env).start())


@app.command()
def stop(project: Project = None, env: Env = "local") -> None:
    """Stop the embedded broker; its records stay."""
    print("stopped" if _embedded(project, env).stop() else "was not running")


@app.command()
def status(project: Project = None, env: Env = "local", as_json: AsJson = False) -> None:
    """Say whether the embedded broker runs, and where."""
    known = _embedded(project, env).status()
    if as_json:
        print_json(asdict(known))
    elif known.running:
        print(f"running on {known.bootstrap} (PID {known.pid}, Kafka {known.version}, data in {known.data})")
    else:
        print(f"not running (Kafka {known.version}, data in {known.data}); start it: headwater kafka start")


@app.command()
def topics(project: Project = None, env: Env = "local", as_json: AsJson = False) -> None:
    """List the topics, with the sum of their partitions' end offsets."""
    from headwater.connectors.kafka.broker import list_topics

    found = list_topics(_options(project, env))
    if as_json:
        print_json([asdict(topic) for topic in found])
        return
    listing = listings.Listing(["topic", "partitions", "end"], right=[1, 2], whole=[0])
    for topic in found:
        listing.row(topic.name, str(topic.partitions), f"{topic.end:,}")
    listings.show([listing], sys.stdout)


@app.command()
def create(project: Project = None, env: Env = "local", as_json: AsJson = False) -> None:
    """Create the project's topics that are missing, so that records can be sent before a run."""
    from headwater.connectors.kafka import wanted
    from headwater.connectors.kafka.broker import create_topics
    from headwater.project.load import load_project

    loaded = load_project(project, env)
    ours = wanted.topics(loaded.topics.values(), loaded.alerts.values(), loaded.sinks.values())
    made = create_topics(_options(loaded.root, env), ours)
    if as_json:
        print_json(
            [
                {"topic": each.topic.name, "partitions": each.partitions, "created": each.created}
                for each in made
            ]
        )
        return
    listing = listings.Listing(["topic", "partitions", "state"], right=[1], whole=[0])
    for each in made:
        listing.row(each.topic.name, str(each.partitions), "created" if each.created else "was there")
    listings.show([listing], sys.stdout)


@app.command("tail")
def tail_topic(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    start_at: Annotated[
        str,
        typer.Option(
            "--from",
            "-o",
            help="earliest | latest | OFFSET (negative: from each end) | ISO time (UTC unless it says)",
        ),
    ] = "earliest",
    count: Annotated[int | None, typer.Option("--n", "-n", "-c", min=1, help="End after N records.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", " /-e", help="Wait for new records, or end at the end.")
    ] = True,
    form: Annotated[
        Literal["text", "json"], typer.Option("--format", "-f", help="How to print them.")
    ] = "text",
    project: Project = None,
    env: Env = "local",
) -> None:
    """Print a topic's records: partition:offset, timestamp, key, value, headers."""
    from headwater.connectors.kafka import tail

    try:
        begin = tail.parse_start(start_at)
    except ValueError as e:
        raise typer.BadParameter(str(e)) from None
    for message in islice(tail.records(_options(project, env), topic, begin, follow=follow), count):
        said = tail.line(message) if form == "text" else json.dumps(tail.fields(message), ensure_ascii=False)
        print(said, flush=True)


def _embedded(project: Path | None, env: str) -> EmbeddedBroker:
    from headwater.connectors import kafka
    from headwater.project.conf import load
    from headwater.project.paths import find_project

    root = find_project(project)
    conf = load(root, env)
    if conf.kafka != "embedded":
        raise BrokerError(
            f"conf/{env}.yaml names a Kafka cluster: it has no embedded broker",
            code="BROKER_NOT_EMBEDDED",
            file=f"conf/{env}.yaml",
            hint="use another --env",
        )
    return kafka.embedded_broker(root, conf)


def _options(project: Path | None, env: str) -> KafkaOptions:
    from headwater.connectors import kafka
    from headwater.project.conf import load
    from headwater.project.paths import find_project

    root = find_project(project)
    conf = load(root, env)
    return kafka.consumer_options(conf, kafka.ensure_running(root, conf))
