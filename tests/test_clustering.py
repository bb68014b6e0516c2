"""A table that asks for it has the rows of a key together: a batch writes few others anew."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.operations.maintain.compact import compact
from headwater.planner.aggregate import Aggregate, Output
from headwater.storage import feed, layers, log, pruning
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import GONE, Target
from headwater.testing import Project

COLUMNS = pa.schema([("account", pa.string()), ("day", pa.date32()), ("n", pa.int64())])
COUNTS = Aggregate((Output("account", "key"), Output("day", "key"), Output("n", "count")))
Key = tuple[str, int]
ACCOUNTS, DAYS = 200, 12
EPOCH = 719_163  # the day's number in the calendar


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a few rows were many."""
    monkeypatch.setattr(layers, "CLUSTER", 100)


def made(root: Path, by: tuple[str, ...] = ("account",)) -> Target:
    properties = {"delta.enableChangeDataFeed": "true"}
    target = Target(Lake(root).create("gold.x", COLUMNS, properties=properties))
    target.cluster(by)
    return target


def table(keys: list[Key], n: list[Any]) -> pa.Table:
    days = pa.array([day for _, day in keys], pa.int32()).cast(pa.date32())
    return pa.table([pa.array([account for account, _ in keys]), days, n], schema=COLUMNS)


def merge(target: Target, held: dict[Key, int], keys: list[Key]) -> log.Commit:
    rows = table(keys, [1] * len(keys))
    identity = Identity("gold.x", 1, target.last("gold.x") + 1, {})
    version = target.merge(rows, COUNTS.keys, COUNTS.merged(COLUMNS), identity)
    held.update({key: held.get(key, 0) + 1 for key in keys})
    return log.read(target.place.path, version)


def filled(target: Target, held: dict[Key, int]) -> None:
    """Day by day, as rows come: each account in each file."""
    for day in range(DAYS):
        merge(target, held, [(f"a{n:03d}", day) for n in range(ACCOUNTS)])
    compact(target, ["account", "day"], settled=0.0)


def rows(table: pa.Table) -> dict[Key, int]:
    found = {(row["account"], (row["day"].toordinal() - EPOCH)): row["n"] for row in table.to_pylist()}
    assert len(found) == len(table)
    return found


def copied(root: Path, by: tuple[str, ...]) -> tuple[int, int]:
    """Rows that five batches about three accounts each write anew, and those that reading for them takes."""
    draw, held, target = random.Random(5), dict[Key, int](), made(root, by)
    filled(target, held)
    total = read = 0
    for _ in range(5):
        accounts = [f"a{draw.randrange(ACCOUNTS):03d}" for _ in range(3)]
        keys = sorted({(account, draw.randrange(DAYS)) for account in accounts for _ in range(10)})
        batch = pa.table({"account": [account for account, _ in keys]})
        found = target.near(pruning.reaches(batch, ["account"]))
        read += sum(
            file.rows for file in log.snapshot(target.place.path, target.version) if file.path in found
        )
        total += int(merge(target, held, keys).metrics["num_target_rows_copied"])
    assert rows(target.held(COLUMNS)) == held
    return total, read


def test_a_batch_about_a_few_keys_reads_and_writes_few_others(tmp_path: Path) -> None:
    """Of 2,400 rows in any order all are copied each time; in files of 100 at most two for each account."""
    some, every = copied(tmp_path / "by", ("account",)), copied(tmp_path / "not", ())
    assert max(some) <= 5 * 3 * 2 * 200
    assert 3 * max(some) < min(every), (some, every)


def test_files_stay_bounded_and_every_row_is_there_for_everyone(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw, held, followed = random.Random(seed), dict[Key, int](), dict[Key, int]()
    target = made(tmp_path)
    for batch in range(40):
        accounts = draw.sample(range(300), draw.randrange(1, 60))
        merge(target, held, [(f"a{n}", draw.randrange(3)) for n in accounts])
        if batch % 12 == 10:
            gone = draw.sample(sorted(held), 5)
            change = table(gone, [None] * 5).append_column(GONE, pa.array([True] * 5))
            target.change(change, ["account", "day"], Identity("gold.x", 1, target.last("gold.x") + 1, {}))
            for key in gone:
                del held[key]
        if batch % 10 == 9:
            before = target.version
            fewer = compact(target, ["account", "day"], settled=0.0)
            assert (target.version > before) == (fewer > 0)
        assert rows(target.held(COLUMNS)) == held
    assert all(file.rows < 200 for file in log.snapshot(target.place.path, target.version))
    for commit in log.commits(target.place.path, after=0, upto=target.version):
        if commit.operation == "OPTIMIZE":
            assert not commit.added and not commit.removed
            continue
        for file in feed.files(commit, target.place.path):
            for row in feed.read(file.path, COLUMNS).to_pylist():
                key = (row["account"], row["day"].toordinal() - EPOCH)
                if row[GONE]:
                    del followed[key]
                else:
                    followed[key] = row["n"]
    assert followed == held


def test_what_is_asked_for_is_kept_and_may_change(tmp_path: Path) -> None:
    target = made(tmp_path)
    version = target.version
    assert Target(target.place).clustered == ["account"]
    target.cluster(["account"])
    assert target.version == version
    target.cluster(["day", "account"])
    assert (target.version, Target(target.place).clustered) == (version + 1, ["day", "account"])
    target.cluster([])
    assert Target(target.place).clustered == []


# As a definition asks for it

FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/visits.py": """import headwater as hw
from pyspark.sql import functions as F
@hw.table(source="bronze.raw", decode=hw.json("user STRING, n BIGINT, at BIGINT"))
def visits(raw):
    return raw.withColumn("event_time", F.timestamp_seconds("at"))
""",
    "gold/best.sql": """CREATE STREAMING TABLE gold.best TBLPROPERTIES ('headwater.cluster_by' = 'user') AS
        SELECT user, max_by(n, n, 2) AS best FROM STREAM silver.visits GROUP BY user""",
    "gold/runs.py": """import headwater as hw
@hw.process(source="silver.visits", keys=["user"], cluster_by=["user"], event_time="event_time",
            delay="10 seconds", columns="user STRING, number INT", state="number INT")
def runs(row, keyed):
    keyed.state = {"number": (keyed.state or {"number": 0})["number"] + 1}
    yield {"user": row["user"], "number": keyed.state["number"]}
""",
}


def test_definitions_ask_for_it(tmp_path: Path, interpreted: SparkSession) -> None:
    project = Project(FILES, tmp_path)
    expected: dict[str, list[int]] = {}
    draw = random.Random(3)
    for batch in range(6):
        visits = [
            {"user": f"u{draw.randrange(40):02d}", "n": draw.randrange(100), "at": 1_760_000_000 + 60 * batch}
            for _ in range(60)
        ]
        for visit in visits:
            expected.setdefault(str(visit["user"]), []).append(int(str(visit["n"])))
        project.send("raw", visits).step()
    best = {user: sorted(values, reverse=True)[:2] for user, values in expected.items()}
    assert {user: list(found) for user, found in project.rows("gold.best")} == best
    project.end()
    numbers = {user: len(values) for user, values in expected.items()}
    assert dict(project.rows("gold.runs GROUP BY user", "user, max(number)")) == numbers
    for name in ("gold.best", "gold.runs__state"):
        table = Target(project.lake.places()[name])
        assert table.clustered == ["user"]
        near = table.near(pruning.reaches(pa.table({"user": ["u07"]}), ["user"]))
        sizes = [file.rows for file in log.snapshot(table.place.path, table.version)]
        assert sizes and max(sizes) < 2 * layers.CLUSTER and len(near) <= len(sizes)
    project.change("gold/best.sql", "TBLPROPERTIES ('headwater.cluster_by' = 'user')", "")
    project.send("raw", [{"user": "u07", "n": 1_000, "at": 1_760_001_000}]).step()
    assert project.rows("gold.best WHERE user = 'u07'", "best[1]") == [(1_000,)]
    assert Target(project.lake.places()["gold.best"]).clustered == []
