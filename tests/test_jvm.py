"""The JVM beside this process is asked little, and what it says never gets between the lines of a result."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from py4j.protocol import REFLECTION_COMMAND_NAME
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.runtime import jvm

SAY = """
from headwater.runtime import jvm
jvm.gateway().jvm.System.out.println("said by Java")
jvm.end()
print("a result")
"""


def test_what_the_jvm_prints_goes_to_standard_error() -> None:
    said = subprocess.run(
        [sys.executable, "-c", SAY],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-Xlog:safepoint:stdout"},  # as the JVM's own warnings do
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout == "a result\n"
    assert "said by Java" in said.stderr
    assert "[safepoint" in said.stderr


def test_java_is_asked_once_what_a_name_stands_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, sent = jvm.gateway()._gateway_client, list[str]()
    send = client.send_command

    def noted(command: str, *arguments: Any, **options: Any) -> Any:
        sent.append(command)
        return send(command, *arguments, **options)

    F.hypot(F.lit(3), F.lit(4)).alias("found")
    monkeypatch.setattr(client, "send_command", noted)
    found = F.hypot(F.lit(3), F.lit(4)).alias("found")
    assert sent and not [command for command in sent if command.startswith(REFLECTION_COMMAND_NAME)]
    assert spark.range(1).select(found).collect() == [(5.0,)]
