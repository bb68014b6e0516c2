"""What the delivery tests share: a project of their own, real processes, and the oracle.

A test changes nothing of the engine: it starts the installed `headwater`, kills it with signals, and
compares the lake with what the seeded generator says the lake must hold.
"""

from __future__ import annotations

import copy
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import duckdb_extension_delta
import psutil
import yaml

from headwater.connectors import kafka, produce
from headwater.connectors.kafka.broker import create_topics
from headwater.connectors.produce import Faults, Ledger, Record
from headwater.project import conf
from headwater.storage import log
from headwater.storage.lake import Lake

ROOT = Path(__file__).resolve().parents[2]
HEADWATER = str(Path(sys.executable).parent / "headwater")
FAULTS = Faults(late=0.01, duplicate=0.01, malformed=0.01, invalid=0.01)
SEED = int(os.environ.get("HEADWATER_TEST_SEED", "7"))
BRONZE, SILVER, GOLD = "bronze.iot_metrics", "silver.cpu_metrics", "gold.cpu_usage_5m"
HOT, FINAL, LATE = "gold.cpu_hot_5m", f"{GOLD}_final", f"{GOLD}_final_late"
QUARANTINE = "quarantine.silver_cpu_metrics"
LIMIT = 240.0  # seconds that any one condition may take to come true, on a machine with other work too

Event = dict[str, Any]
T = TypeVar("T")


def until(condition: Callable[[], T], what: str, within: float = LIMIT) -> T:
    """What `condition` returns, as soon as that is true."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within:.0f} s: {what}"
        time.sleep(0.02)
    return found


BUSES = (
    "bronze/buses.py",
    "silver/buses.py",
    "gold/bus_*",
    "gold/silent_*",
    "quality/*.bus_*",
    "quality/*.silent_*",
)
WEB = ("bronze/web.py", "silver/web.py", "gold/web_*", "gold/page_*", "quality/*.web_*", "quality/*.page_*")
RIDES = ("bronze/rides.py", "silver/rides.py", "gold/lift_*", "quality/*.lift_*")
SALES_SUITES = ("quality/*.purchases*", "quality/*.item_*", "quality/*.top_*")
# The files of each system of the reference project; conf/, queries/ and generators/ are for all.
FILES = {
    "iot": ("bronze/iot.py", "silver/iot.py", "gold/cpu_*", "quality/*.cpu_*", "quality/*.iot_*"),
    "sales": ("bronze/sales.py", "silver/sales.py", "gold/item_*", "gold/top_*", *SALES_SUITES),
    "rides": RIDES,
    "web": WEB,
    "buses": BUSES,
}


@contextmanager
def reader() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB of its own that reads Delta tables, and tells the time in UTC."""
    with duckdb.connect() as connection:
        folder = Path(duckdb_extension_delta.__file__).parent / "extensions"
        connection.execute(f"LOAD '{next(folder.glob('*/delta.duckdb_extension'))}'")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


class Project:
    """A copy of some systems of the reference project with a broker and a lake of its own.

    Args:
        root: an empty folder.
        systems: which ones; their records are sent in turns.
        seed: the generators'.
        faults: the generators'.
        settings: more of `conf/local.yaml`.

    Attributes:
        generator: that of the first system.
        records: what was sent of the first system.
    """

    def __init__(
        self, root: Path, *systems: str, seed: int = SEED, faults: Faults = FAULTS, **settings: Any
    ) -> None:
        systems = systems or ("iot",)
        print(f"seed {seed}, {faults}, project {root}")
        self.root = root
        for folder in ("conf", "generators", "queries"):
            shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for folder in ("bronze", "silver", "gold", "quality"):
            (root / folder).mkdir()
        for pattern in (pattern for system in systems for pattern in FILES[system]):
            for path in ROOT.glob(pattern):
                shutil.copy(path, root / path.relative_to(ROOT))
        # The records' time is not the clock's, which shall end no window.
        for path in (root / "gold").glob("*.sql"):
            idle = "TBLPROPERTIES ('headwater.idle_timeout' = '1 day', "
            path.write_text(path.read_text().replace("TBLPROPERTIES (", idle))
        for path in (root / "gold").glob("*.py"):
            idle = '@hw.process(\n    idle_timeout="1 day",'
            path.write_text(path.read_text().replace("@hw.process(", idle))
        self.configure(**settings)
        self.faults = faults
        self._generators = {system: produce.load_generator(root, system) for system in systems}
        self._sent: dict[str, list[Record]] = {system: [] for system in systems}
        streams = [self._kept(system, seed) for system in systems]
        self._stream = (record for turn in zip(*streams, strict=True) for record in turn)
        self.generator: Any = self._generators[systems[0]]
        self.records = self._sent[systems[0]]
        self._runs = 0

    def of(self, system: str) -> Project:
        """The same project, whose `generator` and `records` are those of another of its systems."""
        other = copy.copy(self)
        other.generator, other.records = self._generators[system], self._sent[system]
        return other

    def configure(self, **settings: Any) -> None:
        """Write `conf/local.yaml` anew."""
        own = {"kafka": "embedded", "broker": {"port": 0}, "postgres": {"warehouse": False}}
        text = yaml.safe_dump({**own, **settings})
        (self.root / "conf" / "local.yaml").write_text(text)

    @property
    def conf(self) -> conf.Conf:
        return conf.load(self.root, "local")

    @property
    def broker(self) -> Any:
        return kafka.embedded_broker(self.root, self.conf)

    def client(self) -> dict[str, Any]:
        """The options of a Kafka client, the broker started where it is not, the topics made."""
        settings = self.conf
        bootstrap = kafka.ensure_running(self.root, settings)
        client = {**kafka.client_options(settings, bootstrap), "log_level": 0}
        create_topics(client, [topic for each in self._generators.values() for topic in each.topics])
        return client

    def produce(self, count: int) -> Ledger:
        """Send the next `count` records and wait until the broker has them; what they are."""
        return produce.run_producer(self._stream, client=self.client(), count=count).ledger

    @contextmanager
    def producing(self, rate: float) -> Iterator[produce.BackgroundProducer]:
        """Send records at a rate for as long as the `with` block lasts."""
        with produce.BackgroundProducer(self._stream, client=self.client(), rate=rate) as producer:
            yield producer

    def note(self, count: int) -> None:
        """The next `count` records were produced by another process from the same seed and faults."""
        for _ in islice(self._stream, count):
            pass

    def run(self, *arguments: str, fail: str | None = None) -> Running:
        """Start `headwater run --json` as a process; `fail` is a point as `headwater.runtime.failpoints` has
        it."""
        self._runs += 1
        return Running(self, [*arguments], fail, self.root / f"run-{self._runs:03d}")

    def once(self, *arguments: str) -> list[Event]:
        """Drain everything by a `run --once` that must succeed; its batches."""
        run = self.run("--once", *arguments)
        assert run.wait() == 0, run.said()
        return run.batches()

    def headwater(self, *arguments: str) -> str:
        """Run a command that must succeed; its output."""
        done = self.tried(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tried(self, *arguments: str, fail: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `fail` is a point as `headwater.runtime.failpoints` has it."""
        environment = {**os.environ, **({"HEADWATER_FAIL_POINT": fail} if fail else {})}
        return subprocess.run(
            [HEADWATER, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def holder(self, table: str) -> dict[str, int]:
        """The processes that the table's lease names: `pid` and `jvm`."""
        try:
            return dict(json.loads((self.flow(table) / "lease").read_bytes() or b"{}"))
        except (FileNotFoundError, ValueError):
            return {}

    def flow(self, table: str) -> Path:
        return Lake(self.conf.lake).flow_folder(table)

    def intents(self) -> dict[str, Event]:
        """The last intent of each flow."""
        files = (self.conf.lake / "_flows").glob("*/*/intent.json")
        return {file.parents[1].name: json.loads(file.read_text()) for file in files}

    def versions(self) -> dict[str, int]:
        """The newest version of every table."""
        return {name: log.head(place.path) for name, place in Lake(self.conf.lake).places().items()}

    def written(self, table: str) -> int:
        """The rows that a table has, to which rows are only added, as its log says."""
        place = Lake(self.conf.lake).places().get(table)
        if place is None:
            return 0
        return sum(file.rows for file in log.snapshot(place.path, log.head(place.path)))

    def caught_up(self) -> bool:
        """Whether bronze and silver hold all that was produced, and gold has read all of that."""
        places = Lake(self.conf.lake).places()
        if not {BRONZE, SILVER, GOLD, FINAL, HOT} <= set(places):
            return False
        bronze = self.written(BRONZE)
        if bronze != len(self.records) or self.written(SILVER) + self.written(QUARANTINE) != bronze:
            return False
        return all(
            self.has_read(table, source) for table, source in ((GOLD, SILVER), (FINAL, SILVER), (HOT, FINAL))
        )

    def has_read(self, table: str, source: str) -> bool:
        """Whether a table has read all that its source holds."""
        places = Lake(self.conf.lake).places()
        read = log.flows(places[table].path).get(table)
        if read is None:
            return False
        at, path = read["consumed"][source], places[source].path
        after = log.commits(path, after=at["version"], upto=log.head(path))
        return at["files"] == 0 and not any(commit.added for commit in after)

    def rows(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        """Rows of a table as DuckDB reads it, hidden columns too; none where there is no such table."""
        place = Lake(self.conf.lake).places().get(table)
        if place is None:
            return []
        with reader() as connection:
            return connection.sql(f"SELECT {columns} FROM delta_scan('{place.path}')").fetchall()

    def _kept(self, system: str, seed: int) -> Iterator[Record]:
        clock = produce.stepped()
        for record in self._generators[system].records(seed=seed, faults=self.faults, clock=clock):
            self._sent[system].append(record)
            yield record


class Running:
    """A `headwater run` and what it says: JSON lines are `events`, each with the time `heard`."""

    def __init__(self, project: Project, arguments: Sequence[str], fail: str | None, files: Path) -> None:
        self.project = project
        self.events: list[Event] = []
        self.unreadable: list[str] = []  # lines of standard output that are none
        self.started = time.monotonic()
        self._changed = threading.Condition()
        self._stderr = files.with_suffix(".stderr")
        environment = {name: value for name, value in os.environ.items() if name != "HEADWATER_FAIL_POINT"}
        if fail is not None:
            environment["HEADWATER_FAIL_POINT"] = fail
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [HEADWATER, "run", "--json", *arguments],
                cwd=project.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    def said(self) -> str:
        """The end of all that it said, for a failure's message."""
        lines = [json.dumps(event) for event in self.events[-12:]]
        return "\n".join([f"exit code {self.process.poll()}", *lines, self.stderr[-3000:]])

    def batches(self, flow: str | None = None) -> list[Event]:
        events = [event for event in list(self.events) if event["event"] == "batch"]
        return [event for event in events if flow is None or event["flow"] == flow]

    def batch(self, flow: str | None = None, after: int = 0, within: float = LIMIT) -> Event:
        """Wait for the batch that follows the first `after` ones; it."""
        self.until(lambda: len(self.batches(flow)) > after, f"batch {after} of {flow or 'any flow'}", within)
        return self.batches(flow)[after]

    def until(self, condition: Callable[[], T], what: str, within: float = LIMIT) -> T:
        """Wait for something that this run brings about, and for no longer than it lives."""
        deadline = time.monotonic() + within
        while not (found := condition()):
            ended = self.process.poll() is not None and not self._reader.is_alive()
            assert not ended or condition(), f"the run ended before: {what}\n{self.said()}"
            assert time.monotonic() < deadline, f"not within {within:.0f} s: {what}\n{self.said()}"
            with self._changed:
                self._changed.wait(0.05)
        return found

    def jvm(self) -> int:
        """The process id of its JVM, once it holds every table."""
        held = lambda: {self.project.holder(table).get("pid") for table in (BRONZE, SILVER, GOLD)}  # noqa: E731
        self.until(lambda: held() == {self.pid}, "the leases")
        return self.project.holder(BRONZE)["jvm"]

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def wait(self, within: float = LIMIT) -> int:
        """Its exit code: negative where a signal ended it."""
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within:.0f} s\n{self.said()}") from None
        self._reader.join(10)
        assert code < 0 or not self.unreadable, f"no events: {self.unreadable}"
        return code

    def end(self) -> None:
        """Leave nothing behind: neither the process nor its JVM."""
        children = psutil.Process(self.pid).children() if self.process.poll() is None else []
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                if "kafka.Kafka" not in child.cmdline():  # the broker is the project's, not the run's
                    child.kill()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = {**json.loads(line), "heard": time.monotonic()}
            except ValueError:
                self.unreadable.append(line)
                continue
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()


def alive(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def gone(pid: int, within: float = LIMIT) -> None:
    """Wait for the end of a process that is no child of ours."""
    until(lambda: not alive(pid), f"the end of process {pid}", within)


def positions(records: Iterable[Record]) -> dict[tuple[int, int], Record]:
    """{(partition, offset) → record}: offsets count up as the records of a partition were sent."""
    ends: Counter[int] = Counter()
    found = {}
    for record in records:
        assert record.partition is not None
        found[record.partition, ends[record.partition]] = record
        ends[record.partition] += 1
    return found


def assert_same(name: str, want: dict[Any, Any], got: dict[Any, Any]) -> None:
    """Both hold the same keys with the same values; else say which differ."""
    missing = sorted(want.keys() - got.keys(), key=repr)
    extra = sorted(got.keys() - want.keys(), key=repr)
    other = [(key, want[key], got[key]) for key in want.keys() & got.keys() if want[key] != got[key]]
    lines = [
        f"{name}: {len(want)} wanted, {len(got)} there",
        f"  {len(missing)} missing: {missing[:5]}",
        f"  {len(extra)} too many: {extra[:5]}",
        f"  {len(other)} different (key, wanted, there): {sorted(other, key=repr)[:5]}",
    ]
    assert not (missing or extra or other), "\n".join(lines)


def once_each(name: str, rows: Iterable[tuple[Any, ...]], key: int) -> dict[Any, tuple[Any, ...]]:
    """{first `key` columns → the others}; no key may come twice."""
    rows = list(rows)
    keys = Counter(row[:key] for row in rows)
    twice = sorted((k, n) for k, n in keys.items() if n > 1)
    assert not twice, f"{name}: {len(twice)} keys more than once, such as {twice[:5]}"
    return {row[:key]: row[key:] for row in rows}


def assert_bronze_and_silver(project: Project) -> None:
    """Bronze holds each record once, as sent; silver and quarantine share it out without overlap."""
    sent = positions(project.records)
    bronze = once_each("bronze", project.rows(BRONZE, 'partition, "offset", key, value'), 2)
    assert_same("bronze", {at: (r.key, r.value) for at, r in sent.items()}, bronze)
    assert_silver(project)

    oracle = project.generator
    columns = 'partition, "offset", value, rules'
    quarantine = once_each("quarantine", project.rows(QUARANTINE, columns), 2)
    rejects = {
        at: (r.value, list(oracle.rules(r.fault))) for at, r in sent.items() if not oracle.kept(r.fault)
    }
    assert_same("quarantine", rejects, quarantine)


def assert_silver(project: Project) -> None:
    """Silver holds what is kept of the records."""
    sent, oracle = positions(project.records), project.generator
    source = '_source.partition, _source."offset"'
    silver = once_each("silver", project.rows(SILVER, f"{source}, hostname, cpu, usage, occurred_at"), 2)
    good = [at for at, record in sent.items() if oracle.kept(record.fault)]
    readings = oracle.silver(sent[at] for at in good)
    assert_same("silver", dict(zip(good, map(tuple, readings), strict=True)), silver)


def gold(project: Project) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """{(window start in epoch ms, hostname, cpu) → (average, maximum, count)}."""
    columns = "epoch_ms(window_start), hostname, cpu, avg_usage, max_usage, _partial.avg_usage_count"
    return once_each("gold", project.rows(GOLD, columns), 3)


def assert_gold(
    want: dict[tuple[Any, ...], tuple[Any, ...]], got: dict[tuple[Any, ...], tuple[Any, ...]]
) -> None:
    """Averages are equal at 1e-9 relative; windows, maxima and counts exactly."""

    def rounded(key: tuple[Any, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
        average = want.get(key, (None,))[0]
        if average is None or value[0] is None:
            return value
        return (average, *value[1:]) if math.isclose(value[0], average, rel_tol=1e-9) else value

    assert_same("gold", want, {key: rounded(key, value) for key, value in got.items()})


def assert_lake_equals_oracle(project: Project) -> None:
    """Every table of the lake holds exactly what the records that were sent make of it."""
    assert_bronze_and_silver(project)
    assert_all_gold(project)


def assert_all_gold(project: Project) -> None:
    """So do all tables of gold."""
    want = project.generator.cpu_usage_5m(project.records)
    assert_gold({tuple(key): tuple(usage) for key, usage in want.items()}, gold(project))
    assert_finals(project)
    assert_hot(project)


def assert_finals(project: Project) -> None:
    """Each window that is over was appended once; the others are open; final, open and late are all."""
    over, opened, late = project.generator.cpu_usage_5m_final(project.records)
    columns = "epoch_ms(window_start), hostname, cpu, avg_usage, max_usage"
    for table, want in ((FINAL, over), (f"{FINAL}__state", opened)):
        found = once_each(table, project.rows(table, columns), 3)
        assert_gold({tuple(key): tuple(usage[:2]) for key, usage in want.items()}, found)
    assert len(project.rows(LATE, "1")) == late


def assert_hot(project: Project) -> None:
    """The view holds the final windows above their host's threshold, as the reference table is now."""
    lines = (project.root / "conf" / "reference" / "hosts.csv").read_text().splitlines()[1:]
    hosts = {name: (site, float(threshold)) for name, site, threshold in (line.split(",") for line in lines)}
    final = "epoch_ms(window_start), hostname, cpu, avg_usage, max_usage"
    want = {
        key: (hosts[key[1]][0], average, hosts[key[1]][1], average - hosts[key[1]][1])
        for key, (average, _) in once_each("final", project.rows(FINAL, final), 3).items()
        if key[1] in hosts and average is not None and average > hosts[key[1]][1]
    }
    columns = "epoch_ms(window_start), hostname, cpu, site, avg_usage, alert_threshold, above"
    assert_same("hot", want, once_each("hot", project.rows(HOT, columns), 3))
