"""`headwater kafka …` in a project of its own; `tail` also on a cluster that conf names."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from raising import raises_code
from typer.testing import CliRunner

from headwater.cli.kafka import app
from headwater.connectors.kafka.broker import EmbeddedBroker, Topic, create_topics
from headwater.connectors.kafka.tail import printable

runner = CliRunner()


def project(folder: Path, conf: str) -> Path:
    (folder / "conf").mkdir()
    (folder / "bronze").mkdir()
    (folder / "conf" / "local.yaml").write_text(conf)
    return folder


@pytest.fixture
def cluster(tmp_path: Path, broker: str) -> Path:
    """A project whose Kafka is a cluster, as far as it knows."""
    return project(tmp_path, f"kafka: {{bootstrap.servers: '{broker}'}}\nlibrdkafka: {{client.id: tests}}\n")


@pytest.fixture(scope="module")
def readings(broker: str) -> str:
    """A topic with two partitions: 0 holds three records, 1 holds one; a second apart."""
    create_topics({"bootstrap.servers": broker}, [Topic("readings", 2)])
    producer = Producer({"bootstrap.servers": broker})
    at = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    producer.produce("readings", b'{"n":1}', b"k1", 0, timestamp=at, headers=[("h", b"\x00\xff")])
    producer.produce("readings", b"\x1b[31mred\xff\n", b"k2", 0, timestamp=at + 1000)
    producer.produce("readings", None, "schlüssel".encode(), 0, timestamp=at + 2000)
    producer.produce("readings", b"other", None, 1, timestamp=at + 3000)
    assert producer.flush(30) == 0
    return "readings"


def tail(cluster: Path, *arguments: str) -> list[str]:
    command = ["tail", "readings", "--project", str(cluster), "--no-follow", *arguments]
    return runner.invoke(app, command, catch_exceptions=False).stdout.splitlines()


def test_tail_prints_each_record_safely(cluster: Path, readings: str) -> None:
    assert sorted(tail(cluster)) == [
        '0:0  2026-01-01T00:00:00.000Z  k1  {"n":1}  h=\\x00\\xff',
        "0:1  2026-01-01T00:00:01.000Z  k2  \\x1b[31mred\\xff\\n  ",
        "0:2  2026-01-01T00:00:02.000Z  schlüssel  NULL  ",
        "1:0  2026-01-01T00:00:03.000Z  NULL  other  ",
    ]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", ["0:0", "0:1", "0:2", "1:0"]),
        ("latest", []),
        ("1", ["0:1", "0:2"]),
        ("-1", ["0:2", "1:0"]),
        ("2026-01-01T00:00:02", ["0:2", "1:0"]),
        ("2026-01-01T01:00:01+01:00", ["0:1", "0:2", "1:0"]),
        ("2030-01-01", []),
    ],
)
def test_tail_starts_where_it_is_told(cluster: Path, readings: str, start: str, expected: list[str]) -> None:
    assert sorted(line.split()[0] for line in tail(cluster, "--from", start)) == expected


def test_tail_as_json(cluster: Path, readings: str) -> None:
    found = [json.loads(line) for line in tail(cluster, "--format", "json")]
    assert {"partition": 0, "offset": 2, "value": None}.items() <= next(
        each for each in found if each["key"] == "schlüssel"
    ).items()


def test_tail_ends_after_n(cluster: Path, readings: str) -> None:
    command = ["tail", "readings", "--project", str(cluster), "--n", "2"]  # follows, but not beyond two
    assert len(runner.invoke(app, command, catch_exceptions=False).stdout.splitlines()) == 2


def test_tail_follows_until_interrupted(cluster: Path, broker: str) -> None:
    create_topics({"bootstrap.servers": broker}, [Topic("followed")])
    main = "from headwater.cli.kafka import app; app()"
    command = [sys.executable, "-c", main, "tail", "followed", "--project", str(cluster), "-f", "json"]
    with subprocess.Popen(
        command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        producer = Producer({"bootstrap.servers": broker})
        for value in ("one", "two"):
            producer.produce("followed", value)
            producer.flush(30)
            assert json.loads(following.stdout.readline())["value"] == value
        following.send_signal(signal.SIGINT)
        assert following.wait(10) == 130


def test_tail_of_no_topic_names_those_there_are(cluster: Path, readings: str) -> None:
    with raises_code("UNKNOWN_TOPIC"):
        runner.invoke(app, ["tail", "nothing", "--project", str(cluster)], catch_exceptions=False)


@pytest.mark.parametrize("arguments", [["--from", "yesterday"], ["--format", "%s"]])
def test_tail_refuses_what_it_does_not_know(cluster: Path, arguments: list[str]) -> None:
    assert runner.invoke(app, ["tail", "readings", "--project", str(cluster), *arguments]).exit_code == 2


def test_bytes_that_are_not_text_are_escaped() -> None:
    assert printable(b"a\tb\r\x9b\xe2\x80\xae\xc3\xa4") == "a\\tb\\r\\x9b\\u202eä"
    assert printable(b"") == ""
    assert printable(None) is None


def test_topics(cluster: Path, readings: str) -> None:
    said = runner.invoke(app, ["topics", "--project", str(cluster), "--json"], catch_exceptions=False)
    assert {"name": "readings", "partitions": 2, "end": 4} in json.loads(said.stdout)
    table = runner.invoke(app, ["topics", "--project", str(cluster)], catch_exceptions=False).stdout
    assert re.search(r"readings +2 +4", table)


def test_start_status_stop(tmp_path: Path) -> None:
    here = project(tmp_path, "broker: {port: 0, heap: 256m}\n")

    def kafka(*arguments: str) -> str:
        command = [*arguments, "--project", str(here / "bronze")]
        return runner.invoke(app, command, catch_exceptions=False).stdout.strip()

    assert kafka("status").startswith("not running")
    try:
        bootstrap = kafka("start")
        known = json.loads(kafka("status", "--json"))
        assert known["running"] and known["bootstrap"] == bootstrap
        assert Path(known["data"]) == here / ".headwater" / "kafka"
        os.kill(known["pid"], 0)
        assert f"running on {bootstrap}" in kafka("status")
        assert kafka("stop") == "stopped"
        assert kafka("stop") == "was not running"
    finally:
        EmbeddedBroker(here / ".headwater" / "kafka").stop()


def test_a_cluster_is_not_ours_to_stop(cluster: Path) -> None:
    with raises_code("BROKER_NOT_EMBEDDED"):
        runner.invoke(app, ["stop", "--project", str(cluster)], catch_exceptions=False)


def test_outside_a_project(tmp_path: Path) -> None:
    with raises_code("NO_PROJECT"):
        runner.invoke(app, ["status", "--project", str(tmp_path)], catch_exceptions=False)


def test_the_projects_topics_are_created_before_anything_runs(cluster: Path, tmp_path: Path) -> None:
    name = f"orders-{tmp_path.name}"
    text = f'import headwater as hw\norders = hw.topic("{name}", partitions=3)\n'
    (cluster / "bronze" / "shop.py").write_text(text)

    def create(*more: str) -> str:
        return runner.invoke(app, ["create", "--project", str(cluster), *more], catch_exceptions=False).stdout

    assert json.loads(create("--json")) == [{"topic": name, "partitions": 3, "created": True}]
    assert create().splitlines()[-1].split() == [name, "3", "was", "there"]
