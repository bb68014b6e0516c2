"""Keys of a configuration are written flat or nested: both say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from raising import raises_code

from headwater.project import conf
from headwater.project.conf import Conf


def loaded(root: Path, text: str) -> Conf:
    (root / "conf").mkdir(exist_ok=True)
    (root / "conf" / "local.yaml").write_text(text)
    return conf.load(root, "local")


@pytest.mark.parametrize(
    ("flat", "nested"),
    [
        ("broker.port: 9092\nbroker.heap: 1g", "broker: {port: 9092, heap: 1g}"),
        ("duckdb.memory: 2GB\nduckdb: {disk: 1GB}", "duckdb: {memory: 2GB, disk: 1GB}"),
        ("broker: {}\nbroker.port: 1", "broker: {port: 1}"),
        ("broker.port: 1\nbroker: {}", "broker: {port: 1}"),
        (
            "kafka.bootstrap.servers: a:1\nkafka.client.id: x",
            "kafka: {bootstrap.servers: 'a:1', client.id: x}",
        ),
        ("kafka: {bootstrap: {servers: 'a:1'}}", "kafka: {bootstrap.servers: 'a:1'}"),
        ("librdkafka.ssl.ca.location: ca", "librdkafka: {ssl.ca.location: ca}"),
        ("spark.sql.autoBroadcastJoinThreshold: 4", "spark: {spark.sql.autoBroadcastJoinThreshold: 4}"),
        ("spark: {sql: {ansi.enabled: true}}", "spark: {spark.sql.ansi.enabled: true}"),
        ("postgres.main.host: db\npostgres.off: off", "postgres: {main: {host: db}, 'off': off}"),
        ("postgres.eu.main.host: db", "postgres: {eu.main: {host: db}}"),
        ("postgres: {eu.main: off}", "postgres.eu.main: off"),
        ("opensearch.s.hosts: ['http://a:1']", "opensearch: {s: {hosts: ['http://a:1']}}"),
        ("s3.in.region: r", "s3: {in: {region: r}}"),
        ("maintain.every: off\nmaintain.checkpoint: 5", "maintain: {every: off, checkpoint: 5}"),
        (
            "maintain.tables.bronze.x.retention: 1 day\nmaintain.tables.silver.y.keep: 1 hour",
            "maintain: {tables: {bronze.x: {retention: 1 day}, silver.y: {keep: 1 hour}}}",
        ),
        ("maintain: {tables.bronze.x: {keep: 1 day}}", "maintain: {tables: {bronze: {x: {keep: 1 day}}}}"),
        ("maintain: {tables: {bronze.x: {}}}", "maintain.tables.bronze.x: {}"),
        ("cores: 3", "cores: 3"),
    ],
)
def test_both_say_the_same(tmp_path: Path, flat: str, nested: str) -> None:
    found = loaded(tmp_path, flat)
    assert found == loaded(tmp_path, nested)
    assert found != loaded(tmp_path, "") or "{}" in flat


@pytest.mark.parametrize(
    "text",
    [
        "broker.port: 1\nbroker: {port: 1}",
        "kafka: embedded\nkafka.client.id: x",
        "kafka.client.id: x\nkafka: embedded",
    ],
)
def test_a_key_stands_once(tmp_path: Path, text: str) -> None:
    with raises_code("CONF_INVALID", match="comes twice, flat and nested"):
        loaded(tmp_path, text)


def test_a_date_that_there_is_not_is_said(tmp_path: Path) -> None:
    with raises_code("CONF_INVALID", match="not valid YAML", file="local.yaml"):
        loaded(tmp_path, "cluster: 2024-13-45")


@pytest.mark.parametrize("text", ["broker.heep: 1g", "broker: {heep: 1g}"])
def test_an_unknown_key_is_said_as_one_would_write_it(tmp_path: Path, text: str) -> None:
    with raises_code("CONF_INVALID", match="unknown key 'broker.heep'; known: heap, port"):
        loaded(tmp_path, text)
    with raises_code("CONF_INVALID", match="unknown key 'borker.port'; known: .*broker"):
        loaded(tmp_path, "borker.port: 1")


@pytest.mark.parametrize("text", ["postgres.main.password: x", "postgres: {main.password: x}"])
def test_a_flat_secret_is_refused_too(tmp_path: Path, text: str) -> None:
    with raises_code("SECRET_IN_CONF", match="postgres.main.password"):
        loaded(tmp_path, text)
