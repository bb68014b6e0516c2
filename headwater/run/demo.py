"""`headwater demo`: a broker, a producer and every flow of one system, watched live; then gold, queried.

What takes seconds to start is begun first and side by side: the broker, the JVM, and Python's own imports,
of which the large ones are within functions for that.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from headwater.common.progress import Board
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import Topic, create_topics
from headwater.connectors.produce import BackgroundProducer, Faults, Generator, event_clock, load_generator
from headwater.connectors.produce.generator import names
from headwater.errors import ProjectError
from headwater.project import conf as configuration
from headwater.project.conf import Conf
from headwater.project.paths import find_project, make_private
from headwater.run.alerts import AlertReader
from headwater.run.screen import Screen
from headwater.runtime import jvm

if TYPE_CHECKING:
    from headwater.project.load import Project
    from headwater.run.supervisor import Run

FAULTS = Faults(late=0.01, duplicate=0.005, malformed=0.005)
EVERY = 1.0  # seconds between two looks at the flows
FILL_LIMIT = 120.0  # seconds more that each table gets to have its first batch
DRAIN_LIMIT = 60.0  # seconds that they get to read all that was produced
FIRST = "iot"  # the system that is shown where nobody asks for another, and there is more than one


@dataclass(frozen=True)
class Show:
    """What the demo is asked for.

    Attributes:
        system: the generator that produces; the tables below its topics are run. None: `iot`, else the first.
        seconds: how long the flows are watched once they run.
        rate: records per second.
        json: one JSON line per look at the flows, and one of the result.
    """

    system: str | None = None
    seconds: float = 60.0
    rate: int = 1000
    json: bool = False


def demo(root: Path | None, env: str, show: Show, out: TextIO = sys.stdout) -> int:
    """Run the demo; the exit code: 0, or 1 when a flow failed.

    Raises:
        HeadwaterError: the demo can't begin.
    """
    board = Board()
    alerts = AlertReader()
    with Screen(board, None if show.json else out, alerts.said) as screen:
        board.stage = "starting Spark and Kafka"
        root = find_project(root)
        conf = configuration.load(root, env)
        make_private(root)
        jvm.begin(conf.memory, *jvm.SHORT_LIVED)
        with _broker(root, conf) as reached:
            from headwater.project.load import load_project
            from headwater.run.supervisor import Options, Run

            project = load_project(root, env)
            generator = load_generator(root, show.system or _first(root))
            tables = _fed(project, generator)
            client = kafka.client_options(conf, reached.result())
            topics = [Topic(alert.topic, alert.partitions) for alert in project.alerts.values()]
            create_topics(client, [*generator.topics, *topics])
            clock, seed = event_clock(rate=show.rate, start=None), random.SystemRandom().randrange(1 << 31)
            events = generator.records(seed=seed, faults=FAULTS, clock=clock)
            run = Run(project, Options(tables), board)
            screen.watch(run.statuses)
            with (
                BackgroundProducer(events, client=client, rate=show.rate) as producer,
                Background(run) as running,
                alerts.reading([topic.name for topic in topics], client),
            ):
                _watch(running, run, show, tables, alerts, out)
                producer.stop()
                behind = _drain(running, run, tables)
    code = running.result()
    _finish(project, tables, generator, behind, show, out)
    return code


@contextmanager
def _broker(root: Path, conf: Conf) -> Iterator[Future[str]]:
    """Kafka's address, once it is reached; a broker that had to be started for that ends with the block."""
    broker = kafka.embedded_broker(root, conf) if conf.kafka == "embedded" else None
    ours = broker is not None and not broker.status().running
    with ThreadPoolExecutor(1) as beside:
        reached = beside.submit(kafka.ensure_running, root, conf)
        try:
            yield reached
        finally:
            reached.exception()
            if broker is not None and ours:
                broker.stop()


def _first(root: Path) -> str:
    """The generator that is shown where nobody asks for one.

    Raises:
        ProjectError: the project has none.
    """
    known = names(root)
    if not known:
        raise ProjectError(
            f"{root / 'generators'}: no generator",
            code="UNKNOWN_GENERATOR",
            file=root / "generators",
            hint="write one, as the project that `headwater init` writes has one",
        )
    return FIRST if FIRST in known else known[0]


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


def _watch(
    running: Background, run: Run, show: Show, tables: Sequence[str], alerts: AlertReader, out: TextIO
) -> None:
    """Let the flows work for `seconds`, and longer where a table has had no batch by then."""
    began: float | None = None
    while running.alive:
        working, now = not run.board.stage, time.monotonic()
        filled = all(run.board.batches(name) for name in tables)
        if show.json:
            flows = [asdict(each) for each in run.statuses()]
            line = {"event": "status", "at": time.time(), "flows": flows, "alerts": alerts.count}
            print(json.dumps(line), file=out, flush=True)
        if working:
            began = began or now
            if now - began > show.seconds + (0.0 if filled else FILL_LIMIT):
                return
        running.wait(EVERY)


def _drain(running: Background, run: Run, tables: Sequence[str]) -> dict[str, int]:
    """Let the flows read what was produced; {table → rows of its input that it has not read for all that}."""
    run.board.stage = "nothing more is produced; the flows read what is there"
    limit = time.monotonic() + DRAIN_LIMIT
    while True:
        lags = {each.flow: each.lag or 0 for each in run.statuses()}
        behind = {name: lags.get(name, 0) for name in tables if lags.get(name) or not run.board.batches(name)}
        if not behind or run.board.failed() or not running.alive or time.monotonic() > limit:
            return behind
        running.wait(EVERY / 2)


class Background:
    """A run in a thread of its own, which ends with the `with` block."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._code = 1
        self._error: BaseException | None = None
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
            BaseException: what ended the run.
        """
        if self._error is not None:
            raise self._error
        return self._code

    def _work(self) -> None:
        try:
            self._code = self._run()
        except BaseException as e:  # told where the result is asked for
            self._error = e


def _finish(
    project: Project,
    tables: Sequence[str],
    generator: Generator,
    behind: dict[str, int],
    show: Show,
    out: TextIO,
) -> None:
    """Say what is missing in which table, show rows of gold through DuckDB, and what to type next."""
    from headwater import query
    from headwater.query.result import write

    shown = str(getattr(generator, "shown", tables[-1]))
    gold = shown.split()[0]
    for name, rows in () if show.json else behind.items():
        what = f"is {rows:,} rows behind" if rows else "has had no batch"
        print(f"{name} {what} as the demo ends", file=out)
    found = query.run(f"SELECT * FROM {shown} LIMIT 10", project=project.root, env=project.env)
    if show.json:
        said = StringIO()
        write(found, "json", said)
        result = {"event": "result", "table": gold, "rows": json.loads(said.getvalue()), "behind": behind}
        print(json.dumps(result), file=out)
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
