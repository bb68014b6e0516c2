"""What the delivery tests share: a project of their own, its runs, and the oracle.

A test changes nothing of the engine: it runs the flows, in this process or as the installed `headwater`
where that is killed with signals, and compares the lake with what the seeded generator says it must hold.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import commands
import yaml
from running import BRONZE, GOLD, HEADWATER, LIMIT, SILVER, Event, Running, Within

from headwater.connectors import kafka, produce
from headwater.connectors.kafka.broker import create_topics
from headwater.connectors.produce import Faults, Ledger, Record
from headwater.project import conf
from headwater.project.definitions import KafkaSink
from headwater.project.load import load_project
from headwater.query import on_duckdb
from headwater.run.supervisor import Options
from headwater.storage import log
from headwater.storage.lake import Lake

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Faults(late=0.01, duplicate=0.01, malformed=0.01, invalid=0.01)
SEED = int(os.environ.get("HEADWATER_TEST_SEED", "7"))
HOT, FINAL, LATE = "gold.cpu_hot_5m", f"{GOLD}_final", f"{GOLD}_final_late"
QUARANTINE = "quarantine.silver_cpu_metrics"


BUSES = (
    "bronze/buses.py",
    "silver/buses.py",
    "gold/bus_*",
    "gold/silent_*",
    "quality/*.bus_*",
    "quality/*.silent_*",
)
WEB = ("bronze/web.py", "silver/web.py", "gold/web_*", "gold/page_*", "quality/*.web_*", "quality/*.page_*")
LEDGER = (
    "bronze/ledger.py",
    "silver/ledger.py",
    "silver/settled.py",
    "silver/trans*",
    "silver/*_legs.sql",
    *(f"gold/{name}*" for name in ("account_", "customer_", "segment_", "debits", "credits", "movements")),
    "gold/transfers.sql",
    *(f"quality/*.{name}*" for name in ("trans", "settled", "account", "customer", "segment")),
    "quality/*_legs.json",
    *(f"quality/gold.{name}.json" for name in ("debits", "credits", "movements")),
)
RIDES = ("bronze/rides.py", "silver/rides.py", "gold/lift_*", "quality/*.lift_*")
SALES_SUITES = ("quality/*.purchases*", "quality/*.item_*", "quality/*.top_*")
# The files of each system of the reference project; conf/, queries/ and generators/ are for all.
FILES = {
    "iot": ("bronze/iot.py", "silver/iot.py", "gold/cpu_*", "quality/*.cpu_*", "quality/*.iot_*"),
    "sales": ("bronze/sales.py", "silver/sales.py", "gold/item_*", "gold/top_*", *SALES_SUITES),
    "rides": RIDES,
    "web": WEB,
    "buses": BUSES,
    "ledger": LEDGER,
}


@cache
def _quoted_topic() -> re.Pattern[str]:
    """A topic of the reference project, as its files name it."""
    project = load_project(ROOT)
    sinks = (sink.topic for sink in project.sinks.values() if isinstance(sink, KafkaSink))
    names = {*(t.topic for t in [*project.topics.values(), *project.alerts.values()]), *sinks}
    return re.compile(rf"(['\"])({'|'.join(map(re.escape, sorted(names)))})\1")


class Project:
    """A copy of some systems of the reference project with topics and a lake of its own.

    Args:
        root: an empty folder.
        systems: which ones; their records are sent in turns.
        broker: the bootstrap servers of the broker that has the topics; None: one of its own, which a test
            may stop, and has to in the end.
        seed: the generators'.
        faults: the generators'.
        settings: more of `conf/local.yaml`.

    Attributes:
        generator: that of the first system.
        records: what was sent of the first system.
    """

    def __init__(
        self,
        root: Path,
        *systems: str,
        broker: str | None = None,
        seed: int = SEED,
        faults: Faults = FAULTS,
        **settings: Any,
    ) -> None:
        systems = systems or ("iot",)
        print(f"seed {seed}, {faults}, project {root}")
        self.root = root
        self._bootstrap = broker
        self._suffix = f"-{uuid4().hex[:8]}" if broker else ""
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
        for path in [*(root / "silver").glob("*.py"), *(root / "gold").glob("*.py")]:
            idle = '@hw.process(\n    idle_timeout="1 day",'
            path.write_text(path.read_text().replace("@hw.process(", idle))
        for path in root.glob("*/*"):
            if path.suffix in (".py", ".sql") and self._suffix:
                path.write_text(_quoted_topic().sub(rf"\1\2{self._suffix}\1", path.read_text()))
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
        kafka = {"bootstrap.servers": self._bootstrap} if self._bootstrap else "embedded"
        own = {"kafka": kafka, "broker": {"port": 0}, "postgres": {"warehouse": False}}
        text = yaml.safe_dump({**own, **settings})
        (self.root / "conf" / "local.yaml").write_text(text)

    @property
    def conf(self) -> conf.Conf:
        return conf.load(self.root, "local")

    def topic(self, name: str) -> str:
        """What a topic of the reference project is called here."""
        return f"{name}{self._suffix}"

    @property
    def broker(self) -> Any:
        """That of its own, if it has one."""
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

    def again(self) -> None:
        """Send all records of the first system once more, as they were."""
        sent = [*self.records]
        produce.run_producer(iter(sent), client=self.client(), count=len(sent))

    @contextmanager
    def producing(
        self, rate: float, client: dict[str, Any] | None = None
    ) -> Iterator[produce.BackgroundProducer]:
        """Send records at a rate for as long as the `with` block lasts.

        Args:
            rate: records a second.
            client: as `client()` gave it, where the broker may be away now.
        """
        client = client or self.client()
        with produce.BackgroundProducer(self._stream, client=client, rate=rate) as producer:
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

    def live(self, **options: Any) -> Within:
        """Run in this process, without alerts, until stopped."""
        return Within(self, Options(**options))

    def drain(self, *tables: str, close: bool = False) -> Within:
        """Take everything that there is in this process; the run, which has ended."""
        with Within(self, Options(tables=tables, once=True, close=close)) as run:
            run.wait()
        return run

    def once(self, *tables: str, close: bool = False) -> list[Event]:
        """Take everything that there is in this process, which must succeed; its batches."""
        run = self.drain(*tables, close=close)
        assert run.code() == 0, run.said()
        return run.batches()

    def headwater(self, *arguments: str) -> str:
        """Run a command that must succeed; its output."""
        done = self.tried(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tried(self, *arguments: str, fail: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in this process where that outlives it; `fail` is a point as
        `headwater.runtime.failpoints` has it.
        """
        if fail is None and arguments[0] not in commands.LEAVING:
            return commands.call(arguments, self.root)
        return subprocess.run(
            [HEADWATER, *arguments],
            cwd=self.root,
            env={**os.environ, **({"HEADWATER_FAIL_POINT": fail} if fail else {})},
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
        with on_duckdb.reader() as connection:
            return connection.sql(f"SELECT {columns} FROM delta_scan('{place.path}')").fetchall()

    def _kept(self, system: str, seed: int) -> Iterator[Record]:
        clock = produce.stepped()
        for record in self._generators[system].records(seed=seed, faults=self.faults, clock=clock):
            self._sent[system].append(record)
            yield record


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
