"""`headwater demo`: a broker, a producer and every flow of one system, watched live; then gold, queried."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import StringIO
from typing import TextIO

from confluent_kafka import Consumer
from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

from headwater import query
from headwater.common.progress import Board
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import Topic, create_topics
from headwater.connectors.produce import BackgroundProducer, Faults, Generator, event_clock, load_generator
from headwater.errors import HeadwaterError, ProjectError
from headwater.project.conf import KafkaOptions
from headwater.project.load import Project
from headwater.query.inspect.status import Status, snapshot
from headwater.query.result import write
from headwater.run.supervisor import Options, Run

FAULTS = Faults(late=0.01, duplicate=0.005, malformed=0.005)
EVERY = 1.0  # seconds between two pictures
START_LIMIT = 120.0  # seconds that the flows get to begin


@dataclass(frozen=True)
class Show:
    """What the demo is asked for.

    Attributes:
        system: the generator that produces; the tables below its topics are run.
        seconds: how long the flows are watched once they run.
        rate: records per second.
        json: one JSON line per picture, and one of the result.
    """

    system: str = "iot"
    seconds: float = 60.0
    rate: int = 1000
    json: bool = False


def demo(project: Project, show: Show, out: TextIO = sys.stdout) -> int:
    """Run the demo; the exit code: 0, or 1 when a flow failed.

    Raises:
        HeadwaterError: the demo can't begin.
    """
    broker = kafka.embedded_broker(project.root, project.conf) if project.conf.kafka == "embedded" else None
    ours = broker is not None and not broker.status().running
    bootstrap = kafka.ensure_running(project.root, project.conf)
    try:
        return _watch(project, show, kafka.client_options(project.conf, bootstrap), out)
    finally:
        if broker is not None and ours:
            broker.stop()


def _watch(project: Project, show: Show, client: KafkaOptions, out: TextIO) -> int:
    generator = load_generator(project.root, show.system)
    create_topics(client, generator.topics)
    create_topics(client, [Topic(alert.topic, alert.partitions) for alert in project.alerts.values()])
    clock = event_clock(rate=show.rate, start=None)
    events = generator.records(seed=random.SystemRandom().randrange(1 << 31), faults=FAULTS, clock=clock)
    board = Board(notices=StringIO() if show.json else sys.stderr)
    tables = _fed(project, generator)
    run = Run(project, Options(tables), board)
    with (
        Background(run) as running,
        AlertReader(project, client) as alerts,
        _screen(show, out) as draw,
        BackgroundProducer(events, client=client, rate=show.rate),
    ):
        began = time.monotonic()
        while running.alive and not _over(tables, board, time.monotonic() - began, show.seconds):
            draw(snapshot(project, board, client), alerts)
            running.wait(EVERY)
    code = running.result()
    _finish(project, tables, generator, show, out)
    return code


def _fed(project: Project, generator: Generator) -> list[str]:
    """The tables that the generator's topics feed.

    Raises:
        ProjectError: none.
    """
    topics = {topic.name for topic in generator.topics}
    fed = {topic.name for topic in project.topics.values() if topic.topic in topics}
    tables = [name for name in project.names() if fed & set(project.above([name]))]
    if not tables:
        raise ProjectError(
            f"no table reads {', '.join(sorted(topics))}",
            code="GENERATOR_FEEDS_NOTHING",
            hint=f"add one in {project.root / 'bronze'}",
        )
    return tables


def _over(tables: list[str], board: Board, elapsed: float, seconds: float) -> bool:
    """Whether to stop watching: after `seconds`, but not before every table has had a batch."""
    filled = all(name in board.flows and board.flows[name].batches for name in tables)
    return elapsed > seconds and (filled or elapsed > seconds + START_LIMIT)


class Background:
    """A run in a thread of its own, which ends with the `with` block."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._code: int | HeadwaterError = 1
        self._thread = threading.Thread(target=self._work, name="run", daemon=True)

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run.stop()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the run goes on."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait for the run to end, at most `seconds`."""
        self._thread.join(seconds)

    def result(self) -> int:
        """The run's exit code.

        Raises:
            HeadwaterError: the run could not begin.
        """
        if isinstance(self._code, HeadwaterError):
            raise self._code
        return self._code

    def _work(self) -> None:
        try:
            self._code = self._run()
        except HeadwaterError as e:
            self._code = e


class AlertReader:
    """Reads the topics of the project's alerts from now on: how many came, the last one, how fast."""

    def __init__(self, project: Project, client: KafkaOptions) -> None:
        self.count = 0
        self.last = ""
        self._topics = [alert.topic for alert in project.alerts.values()]
        group = {
            "group.id": f"demo-{uuid.uuid4()}",
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
        }
        self._consumer = Consumer({**client, **group, "log_level": 3})
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, name="alerts", daemon=True)

    def __enter__(self) -> AlertReader:
        if self._topics:
            self._consumer.subscribe(self._topics)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._topics:
            self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._done.is_set():
            for message in self._consumer.consume(1000, timeout=0.2):
                if message.error() is None:
                    self.count += 1
                    self.last = f"{message.topic()} {(message.value() or b'').decode(errors='replace')}"


Draw = Callable[[list[Status], AlertReader], None]


@contextmanager
def _screen(show: Show, out: TextIO) -> Iterator[Draw]:
    """How a picture is drawn: live on a terminal, a line per picture in a pipe, JSON for machines."""
    console = Console(file=out)
    if show.json:
        yield lambda flows, alerts: _print_json(out, flows, alerts)
    elif console.is_terminal:
        with Live(console=console, transient=False) as live:
            yield lambda flows, alerts: live.update(_grid(flows, alerts))
    else:
        said: list[str] = [""]
        yield lambda flows, alerts: _print_line(out, said, _line(flows, alerts))


def _print_json(out: TextIO, flows: list[Status], alerts: AlertReader) -> None:
    picture = {
        "event": "status",
        "at": time.time(),
        "flows": [asdict(s) for s in flows],
        "alerts": alerts.count,
    }
    print(json.dumps(picture), file=out, flush=True)


def _line(flows: list[Status], alerts: AlertReader) -> str:
    fresh = [
        f"{s.flow} {s.rows:,} rows ({_seconds(s.freshness)} fresh)" for s in flows if s.freshness is not None
    ]
    return " · ".join([*(fresh or ["starting"]), f"{alerts.count:,} alerts"])


def _print_line(out: TextIO, said: list[str], line: str) -> None:
    """Print a line unless it was the last one."""
    if line != said[-1]:
        said[:] = [line]
        print(line, file=out, flush=True)


def _grid(flows: list[Status], alerts: AlertReader) -> Grid:
    grid = Grid(
        title="headwater: Kafka → bronze → silver → gold", caption=f"{alerts.count:,} alerts  {alerts.last}"
    )
    grid.add_column("flow")
    grid.add_column("state")
    for name in ("rows/s", "rows", "quarantined", "lag", "freshness"):
        grid.add_column(name, justify="right")
    for s in flows:
        lag = "" if s.lag is None else f"{s.lag:,}"
        grid.add_row(
            s.flow,
            s.state,
            f"{s.rows_per_second:,.0f}",
            f"{s.rows:,}",
            f"{s.quarantined:,}",
            lag,
            _seconds(s.freshness),
        )
    return grid


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"


def _finish(project: Project, tables: list[str], generator: Generator, show: Show, out: TextIO) -> None:
    """Show rows of gold through DuckDB, and what to type next."""
    shown = str(getattr(generator, "shown", tables[-1]))
    gold = shown.split()[0]
    found = query.run(f"SELECT * FROM {shown} LIMIT 10", project=project.root, env=project.env)
    if show.json:
        rows = StringIO()
        write(found, "json", rows)
        print(json.dumps({"event": "result", "table": gold, "rows": json.loads(rows.getvalue())}), file=out)
        return
    print(f"\n{gold}, as DuckDB reads it:\n", file=out)
    write(found, "table", out)
    print(_next(gold), file=out, flush=True)


def _next(gold: str) -> str:
    """What to type next, and what it does."""
    commands = {
        f'headwater query "SELECT count(*) FROM {gold}"': "ask the lake, by DuckDB or --engine spark",
        f"headwater describe {gold}": "what the table is, and where it comes from",
        "headwater run": "keep the flows running",
    }
    width = max(map(len, commands))
    return "\n".join(["", "Next:", *(f"  {command:{width}}  {does}" for command, does in commands.items())])
