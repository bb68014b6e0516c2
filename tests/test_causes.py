"""What is said of errors that others raise: the root cause in one line, and the next step if known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.connectors.kafka.topics import unanswered
from headwater.errors.causes import data_of, describe, first_line
from headwater.run.faults import transient
from headwater.runtime import jvm


def below(error: Any) -> Callable[[], None]:
    """What raises a Java error that another one was caused by, as those of Spark's jobs are."""
    return lambda: jvm.java_class("java.util.concurrent.CompletableFuture").failedFuture(error()).get()


def java(name: str, *arguments: str) -> Callable[[], None]:
    return below(lambda: jvm.java_class(name)(*arguments))


def written(name: str) -> Callable[[], None]:
    path = jvm.java_class("java.nio.file.Path").of
    return lambda: jvm.java_class("java.nio.file.Files").writeString(path(name, []), "text", [])


def no_room() -> None:
    with open("/dev/full", "w") as file:
        file.write("text")


def no_option() -> None:
    AdminClient({"bootstrap.servers": "nowhere:9092", "ssl.ca.locaton": "/nowhere"})


KAFKA = "org.apache.kafka.common.errors"


@pytest.mark.parametrize(
    ("fails", "code", "says"),
    [
        (no_room, "DISK_FULL", "OSError: [Errno 28] No space left on device; make room"),
        (java("java.io.IOException", "No space left on device"), "DISK_FULL", "IOException: No space left"),
        (
            java("java.io.IOException", "/a: Read-only file system"),
            "FILE_SYSTEM_READ_ONLY",
            "IOException: /a",
        ),
        (java("java.io.FileNotFoundException", "/a (Permission denied)"), "PERMISSION_DENIED", "/a"),
        (
            java("java.lang.OutOfMemoryError", "Java heap space"),
            "OUT_OF_MEMORY",
            "OutOfMemoryError: Java heap",
        ),
        (java("java.lang.IllegalStateException", "[KAFKA_DATA_LOSS.A] gone;\nb"), "RECORDS_GONE", "] gone;"),
        (
            java(f"{KAFKA}.SaslAuthenticationException", "Invalid password"),
            "LOGIN_REFUSED",
            "Invalid password",
        ),
        (
            java(f"{KAFKA}.SslAuthenticationException", "handshake failed"),
            "LOGIN_REFUSED",
            "handshake failed",
        ),
        (no_option, "CONF_INVALID", "ssl.ca.locaton"),
        (java("java.net.UnknownHostException", "nowhere"), "HOST_UNKNOWN", "UnknownHostException: nowhere"),
    ],
)
def test_a_cause_that_is_known_says_the_next_step(
    spark: SparkSession, fails: Callable[[], None], code: str, says: str
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        fails()
    said, data = describe(raised.value), data_of(raised.value)
    assert says in said and "\n" not in said and "calling" not in said and "Execution" not in said
    assert data is not None and data["code"] == code and said.endswith(str(data["hint"]))
    assert transient(raised.value) == (code == "HOST_UNKNOWN")


def test_any_other_says_its_root_cause(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    half = F.udf(lambda n: 1 / n, "double")
    for fails, says in {
        java("java.lang.NullPointerException"): "NullPointerException",
        java("java.lang.IllegalStateException", "a: b\nc"): "IllegalStateException: a: b",
        lambda: spark.range(1).write.parquet(str(tmp_path / "file" / "x")): str(tmp_path / "file"),
        lambda: spark.range(1).select(half("id")).write.parquet(str(tmp_path / "y")): (
            "ZeroDivisionError: division by zero"
        ),
        lambda: spark.sql("SELECT nothing"): "[UNRESOLVED_COLUMN",
    }.items():
        with pytest.raises(Exception) as raised:  # noqa: PT011
            fails()
        said = describe(raised.value)
        assert says in said and "\n" not in said and "calling" not in said, said
        assert data_of(raised.value) is None
    assert describe(KeyError("x")) == "KeyError: 'x'" and first_line(ValueError("\n a\nb")) == "a"


def test_a_login_that_kafka_refuses_is_not_tried_again() -> None:
    refused = unanswered("topic t", KafkaException(KafkaError(KafkaError._AUTHENTICATION)))
    assert refused.code == "LOGIN_REFUSED" and not transient(refused)
    nowhere = unanswered("topic t", KafkaException(KafkaError(KafkaError._RESOLVE)))
    assert nowhere.code == "HOST_UNKNOWN" and transient(nowhere)


@pytest.mark.parametrize(
    ("fails", "code"), [("1 / 0", "UNFORESEEN"), ("open('/dev/full', 'wb', 0).write(b'x')", "DISK_FULL")]
)
def test_a_command_never_ends_in_a_traceback(fails: str, code: str) -> None:
    text = f"import headwater.cli as cli; cli.app = lambda: {fails}; cli.main()"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and line.startswith("headwater: ") and line.endswith(f" [{code}]")
    if code == "UNFORESEEN":
        kept = Path(line.split()[-2])
        assert "ZeroDivisionError" in line and "Traceback" in kept.read_text()
        kept.unlink()


@pytest.mark.parametrize(
    ("to", "does", "code", "says"),
    [
        ("/dev/full", "print('x')", 1, "[DISK_FULL]"),
        ("/dev/full", "print('x' * 100_000)", 1, "[DISK_FULL]"),
        ("|true", "print('x')", 0, None),
    ],
)
def test_nor_where_its_output_goes_nowhere(to: str, does: str, code: int, says: str | None) -> None:
    text = f"import sys, headwater.cli as cli; cli.app = lambda: ({does}, sys.exit()); cli.main()"
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs if to == "|true" else to, "w") as out:
        done = subprocess.run(
            [sys.executable, "-c", text],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
    lines = done.stderr.splitlines()
    assert done.returncode == code and len(lines) == (says is not None)
    assert all(line.startswith("headwater: ") and line.endswith(says or "") for line in lines)


def test_a_damaged_file_that_spark_reads_is_named(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1000).coalesce(1).write.parquet(str(tmp_path / "a"))
    (file,) = (tmp_path / "a").glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    with pytest.raises(Exception, match="FAILED_READ_FILE") as raised:
        spark.read.parquet(str(file)).collect()
    said, text = data_of(raised.value), describe(raised.value)
    assert said is not None and (said["code"], said["file"]) == ("FILE_DAMAGED", str(file))
    assert text.startswith(f"{file} can't be read: ParquetDecodingException: could not verify page integrity")
    assert text.endswith("; headwater verify says whose it is, what is lost, and the way back")
