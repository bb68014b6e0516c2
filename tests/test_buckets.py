"""Objects of a store that speaks S3: taken as files are, and nothing is lost when the store is away."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from landed import EPOCH, Landed, parquet, times
from pyspark.sql import SparkSession
from raising import raises_code
from store import ACCESS, SECRET, Store
from test_backfill import ONLY, RAW
from typer.testing import CliRunner

from headwater.cli import app
from headwater.connectors.files import bucket as buckets
from headwater.connectors.files.bucket import Bucket
from headwater.connectors.files.folder import Folder
from headwater.errors import StoreUnavailable
from headwater.errors.codes import Code
from headwater.flows.declared import flow_of
from headwater.operations.backfill import backfill, plan
from headwater.project.conf import BucketOptions
from headwater.project.load import load_project
from headwater.query.inspect.status import standings
from headwater.runtime import failpoints

PAID = "bronze.paid"
LANDING = "s3://acme/landing"
BRONZE = 'import headwater as hw\npaid = hw.files("s3://acme/landing/**/*.json*", max_rows_per_batch=10)\n'
HEADWATER = str(Path(sys.executable).parent / "headwater")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as store:
        (store.root / "acme").mkdir()
        yield store


@pytest.fixture
def case(tmp_path: Path, store: Store, interpreted: SparkSession) -> Landed:
    files = {"conf/local.yaml": store.conf("acme").decode(), "bronze/paid.py": BRONZE}
    return Landed(tmp_path / "project", interpreted, files, store.root / "acme")


def reached(store: Store, **others: Any) -> BucketOptions:
    """How a bucket of the store is reached."""
    options: dict[str, Any] = {"endpoint": f"http://127.0.0.1:{store.port}", "region": "us-east-1"}
    return BucketOptions(**{**options, "access_key": ACCESS, "secret_key": SECRET, **others})


def incoming(case: Landed) -> Path:
    return case.lake.flow_folder(PAID) / "incoming"


def test_each_object_is_taken_once_in_the_order_of_writing(case: Landed) -> None:
    case.land("b.json", 1, 2)
    case.land("a.json.gz", 3)
    case.land("deep/er/day=1/c d+e%.json", 4, 5)
    for name in ("_a.json", ".b.json", "_half/c.json", "f.txt"):
        case.land(name, 99)
    case.put("landing/empty.json", b"")
    case.drain(PAID)
    assert case.numbers(PAID) == [1, 2, 3, 4, 5]
    case.drain(PAID)
    case.land("z.json", 6)
    os.utime(case.land("old.json", 7), (EPOCH - 999,) * 2)
    case.land("huge.json.gz", *range(100, 135))  # in parts
    case.drain(PAID)
    assert case.numbers(PAID) == [1, 2, 3, 4, 5, 7, 6, *range(100, 135)]
    assert set(case.outcomes(PAID).values()) == {"taken"}
    assert not incoming(case).exists()

    row = case.found(PAID)[2]
    assert [row["timestamp"]] == times(2) and row["topic"] == PAID
    headers = {header["key"]: header["value"].decode() for header in row["headers"]}
    assert headers["file.path"] == f"{LANDING}/a.json.gz"
    (standing,) = standings(case.definitions)
    assert (standing.unread, standing.amiss) == (0, 0)


@pytest.mark.parametrize("form", ["csv", "parquet", "avro"])
def test_a_pattern_means_the_same_as_of_files(store: Store, form: str) -> None:
    root = store.root / "acme"
    for name in (
        "x.{}",
        "a/x.{}",
        "a/b/y1.{}",
        "a/b/_z.{}",
        "a/_b/x.{}",
        "_in/x.{}",
        "a/b/c/[1].{}",
        "a/.x.{}",
    ):
        path = root / name.format(form)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (root / f"a/empty.{form}").touch()
    some = 0
    for shape in (
        "*.{}",
        "**/*.{}",
        "a/**/*.{}",
        "*/?.{}",
        "a/*/y[0-9].{}",
        "a/*/y[!0-9].{}",
        "_in/*",
        "**/b/*",
        "a/**",
        "**/b*/**/*.{}",
        "**",
    ):
        pattern = shape.format(form)
        mine = Bucket(f"s3://acme/{pattern}", reached(store)).find(by_name=True)
        theirs = Folder(root, pattern).find(by_name=True)
        assert [file.path for file in mine] == [f"s3://acme/{file.path}" for file in theirs], pattern
        assert [file.size for file in mine] == [file.size for file in theirs]
        some += len(mine)
    assert some > 10
    assert Bucket("s3://acme/nowhere/*", reached(store)).find() == []


def test_what_is_amiss_is_said_and_the_rest_goes_on(case: Landed) -> None:
    case.put("landing/damaged.json.gz", b"no such file")
    case.land("good.json", *range(3))
    case.put("landing/cut.json.gz", gzip.compress(b'{"n": 9}\n' * 10_000)[:-20])
    case.drain(PAID)
    assert case.numbers(PAID) == [0, 1, 2]
    assert case.outcomes(PAID) == {
        "damaged.json.gz": "unreadable",
        "good.json": "taken",
        "cut.json.gz": "unreadable",
    }
    case.land("good.json", *range(5))
    case.land("cut.json.gz", 3)
    case.drain(PAID)
    assert case.numbers(PAID) == [0, 1, 2, 3]
    assert case.outcomes(PAID)["good.json"] == "changed"
    assert "s3://acme/landing/good.json: changed after it was taken" in case.notices


def test_objects_that_change_or_go_while_they_are_brought(store: Store, tmp_path: Path) -> None:
    folder = store.root / "acme/in"
    folder.mkdir()
    for n in range(buckets.AHEAD + 4):
        (folder / f"{n:02d}.json").write_text(f"{n}\n")
    bucket = Bucket("s3://acme/in/*", reached(store))
    found = bucket.find(by_name=True)
    (folder / "01.json").write_text("another\n")
    (folder / "03.json").unlink()
    read, into = {}, tmp_path / "incoming"
    (into / "left").mkdir(parents=True)
    for file, brought in bucket.bring(found, into):
        assert len(list(into.iterdir())) <= buckets.AHEAD + 1
        try:
            read[Path(file.path).stem] = brought().read_text()
        except FileNotFoundError as e:
            read[Path(file.path).stem] = type(e).__name__
    expected = {f"{n:02d}": f"{n}\n" for n in range(buckets.AHEAD + 4)}
    assert read == expected | {"01": "FileNotFoundError", "03": "FileNotFoundError"}
    assert not into.exists()


def test_objects_are_known_by_the_second_in_which_they_were_written(store: Store, tmp_path: Path) -> None:
    """Whatever a listing tells of the fraction; that of .5 is read as 1970 by Amazon's client."""
    folder = store.root / "acme/in"
    folder.mkdir()
    for fraction in (0, 1, 10, 499, 500, 999):
        (folder / f"{fraction}.json").write_text("x")
        written = EPOCH * 10**9 + fraction * 10**6
        os.utime(folder / f"{fraction}.json", ns=(written, written))
    bucket = Bucket("s3://acme/in/*", reached(store))
    found = bucket.find()
    assert {file.modified for file in found} == {EPOCH * 10**6} and len(found) == 6
    assert {brought().read_text() for _, brought in bucket.bring(found, tmp_path / "incoming")} == {"x"}


def test_not_too_much_is_brought_ahead(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, into = store.root / "acme/in", tmp_path / "incoming"
    folder.mkdir()
    for n in range(6):
        (folder / f"{n}.json").write_bytes(b"x" * 1000)
    monkeypatch.setattr(buckets, "AHEAD_BYTES", 2500)
    bucket = Bucket("s3://acme/in/*", reached(store))
    bringing = bucket.bring(bucket.find(by_name=True), into)
    for _, brought in bringing:
        brought()
        assert sum(1 for _ in into.iterdir()) <= 2
    monkeypatch.setattr(buckets, "AHEAD_BYTES", 1)  # one at a time, however large
    assert sum(brought().stat().st_size for _, brought in bucket.bring(bucket.find(), into)) == 6000


def test_one_object_that_the_store_refuses_is_unreadable(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in an archive is, which a listing still names."""
    folder = store.root / "acme/in"
    folder.mkdir()
    for n in range(2):
        (folder / f"{n}.json").write_text(f"{n}\n")
    bucket = Bucket("s3://acme/in/*", reached(store))

    class Archived:
        get_file_info = bucket._store.get_file_info

        @staticmethod
        def open_input_stream(path: str, **options: Any) -> Any:
            if path.endswith("0.json"):
                raise OSError("AWS Error INVALID_OBJECT_STATE during GetObject operation: in an archive")
            return real.open_input_stream(path, **options)

    real = bucket._store
    monkeypatch.setattr(bucket, "_store", Archived)
    (_, first), (_, second) = (
        (file, _outcome(brought)) for file, brought in _all(bucket, tmp_path / "incoming")
    )
    assert isinstance(first, PermissionError) and "INVALID_OBJECT_STATE" in str(first)
    assert second == "1\n"


def _all(bucket: Bucket, into: Path) -> Any:
    return bucket.bring(bucket.find(by_name=True), into)


def _outcome(brought: Any) -> Any:
    try:
        return brought().read_text()
    except OSError as e:
        return e


def test_a_store_that_is_away_is_waited_for(
    case: Landed, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        case.land(f"{n}.json", *range(n * 20, n * 20 + 20))
    monkeypatch.setattr(buckets, "AHEAD", 1)
    flow: Any = flow_of(case.begun(), PAID)
    flow._intake.recover()
    flow._intake.look(flow._source, flow._files.format, 0)
    assert flow._step()
    store.stop()

    def on() -> None:
        while flow._step():
            pass

    with raises_code("STORE_UNAVAILABLE", match=r"s3://acme/landing/\d\.json: .*NETWORK_CONNECTION"):
        on()
    flow._intake.close()
    taken = case.numbers(PAID)
    assert 10 <= len(taken) < 80 and taken == list(range(len(taken)))  # what came before is in the table
    (standing,) = standings(case.definitions)
    assert standing.unread is None
    with raises_code("STORE_UNAVAILABLE"):
        case.drain(PAID)
    store.start()
    case.drain(PAID)
    assert case.numbers(PAID) == list(range(80))


def test_objects_that_arrive_while_the_store_comes_and_goes(case: Landed, store: Store) -> None:
    """A run tries again, later and later; each object is taken once."""
    from headwater.run.faults import transient

    context = case.begun(once=False)
    failed: list[Exception] = []

    def work() -> None:
        while not context.stop.is_set():
            try:
                flow_of(context, PAID).run()
            except Exception as e:
                failed.append(e)
                if not transient(e):
                    return

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for n in range(30):
            case.land(f"{n}.json", *range(n * 20, n * 20 + 20))
            if n % 10 == 5:
                before = len(failed)
                store.stop()
                _until(lambda before=before: len(failed) > before, worker)
                store.start()
        _until(lambda: context.board.flows.get(PAID) and context.board.flows[PAID].rows_in >= 600, worker)
    finally:
        context.stop.set()
        worker.join()
    assert len(failed) >= 3 and all(isinstance(error, StoreUnavailable) for error in failed)
    assert sorted(case.numbers(PAID)) == list(range(600))


def _until(there: Any, worker: threading.Thread) -> None:
    deadline = time.monotonic() + 300
    while not there():
        assert time.monotonic() < deadline and worker.is_alive()
        time.sleep(0.02)


def test_what_a_store_refuses(case: Landed, store: Store) -> None:
    for others, said in (
        ({"access_key": "nobody"}, "INVALID_ACCESS_KEY_ID"),
        ({"secret_key": "wrong"}, "SIGNATURE_DOES_NOT_MATCH"),
    ):
        with raises_code(
            "STORE_REFUSES",
            file="acme/x*",
            match=rf"s3://acme/x\*: .*{said}.*; see s3\.acme in conf/<env>\.yaml",
        ):
            Bucket("s3://acme/x*", reached(store, **others)).find()
    with raises_code("STORE_REFUSES", match=r"NO_SUCH_BUCKET.*; see s3\.umbrella in"):
        Bucket("s3://umbrella/x/*", reached(store)).find()


def test_what_a_project_may_say(case: Landed, store: Store) -> None:
    case.put("bronze/paid.py", BRONZE.replace("s3://acme", "s3://acne").encode())
    with raises_code("UNKNOWN_BUCKET", table="bronze.paid", file="paid.py"):
        load_project(case.root)
    for pattern in ("gs://acme/x/*", "s3://acme", "s3:///x"):
        case.put("bronze/paid.py", f"import headwater as hw\npaid = hw.files({pattern!r})".encode())
        with raises_code("FILES_PATTERN_INVALID"):
            load_project(case.root)
    case.put("bronze/paid.py", BRONZE.encode())
    wrong: list[tuple[dict[str, str], Code, str]] = [
        ({"secret_key": "abc"}, "SECRET_IN_CONF", r"s3\.acme\.secret_key "),
        ({"session_token": "abc"}, "SECRET_IN_CONF", r"s3\.acme\.session_token "),
        ({"access_key": "null"}, "CONF_INVALID", "access_key and secret_key belong together"),
        ({"endpoint": "acme.example:9000"}, "CONF_INVALID", r"s3\.acme\.endpoint.*that is no address"),
        (
            {"zone": "x"},
            "CONF_INVALID",
            "unknown key 's3.acme.zone'; known: access_key, endpoint, region, secret_key, session_",
        ),
    ]
    for others, code, said in wrong:
        case.put("conf/local.yaml", store.conf("acme", **others))
        with raises_code(code, file="conf/local.yaml", match=said):
            load_project(case.root)


def test_history_of_a_topic(tmp_path: Path, store: Store, interpreted: SparkSession) -> None:
    files = {**ONLY, "conf/local.yaml": store.conf("acme").decode()}
    case = Landed(tmp_path / "project", interpreted, files, store.root / "acme")
    case.land("b.json", *range(5, 40))
    case.land("a.json", *range(5))
    case.put("landing/c.parquet", parquet([50, 51]))
    pattern = f"{LANDING}/*.json"
    assert [(file.path, file.state) for file in plan(case.definitions, RAW, pattern)] == [
        (f"{LANDING}/a.json", "new"),
        (f"{LANDING}/b.json", "new"),
    ]
    command = ["backfill", RAW, "--from-files", pattern, "--project", str(case.root)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0 and "40 records of 2 files, partition 0" in done.stdout, done.output
    done = CliRunner().invoke(app, command)
    assert "0 records of 0 files" in done.stdout and "2 files were there before" in done.stdout
    taken = backfill(case.definitions, RAW, f"{LANDING}/*.parquet")
    assert (taken.records, taken.partition) == (2, 1)
    numbers = [json.loads(row["value"])["n"] for row in case.found(RAW)]
    assert numbers == [*range(40), 50, 51]
    with raises_code("UNKNOWN_BUCKET", file="acne/x"):
        backfill(case.definitions, RAW, "s3://acne/x")
    store.stop()
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, StoreUnavailable)


@pytest.mark.torture
def test_processes_that_are_killed_take_each_object_once(case: Landed, store: Store) -> None:
    """Killed at every step of a commit, and at any moment while objects are brought and the store goes."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    case.put("bronze/paid.py", BRONZE.replace("=10", "=300").encode())
    sent = 0
    command = [HEADWATER, "run", "--once", "--project", str(case.root)]

    def land() -> None:
        nonlocal sent
        for _ in range(3):
            count = draw.randint(301, 1000)
            case.land(f"{sent}.json.gz", *range(sent, sent + count))
            sent += count

    for step in failpoints.STEPS:
        land()
        environment = {**os.environ, "HEADWATER_FAIL_POINT": f"{step}:{PAID}:1=python"}
        killed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    for _ in range(3):
        land()
        store.stop()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(draw.uniform(5, 15))  # anywhere between its start and its waiting for the store
            store.start()
            time.sleep(draw.uniform(0, 2))
        finally:
            process.kill()
            process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert case.numbers(PAID) == list(range(sent))
    assert not incoming(case).exists()
