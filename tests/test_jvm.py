"""The JVM beside this process is asked little, and what it says never gets between the lines of a result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import REFLECTION_COMMAND_NAME
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from raising import raises_code

from headwater.project import conf as configuration
from headwater.runtime import jvm, sessions

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


def test_it_starts_where_a_folder_has_a_blank_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "my 'projects'"
    folder.mkdir()
    (folder / "headwater").symlink_to(Path(jvm.__file__).parents[1])
    say = f"import sys; sys.path.insert(0, {str(folder)!r})\n{SAY}\nprint(jvm.__file__)"
    said = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    assert said.stdout == f"a result\n{folder}/headwater/runtime/jvm.py\n"
    assert "configuration" not in said.stderr.lower()  # of log4j, which would tell that it has none


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


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("spark.sql.broadcastTimeout: abc", "'abc' in the config \"spark.sql.broadcastTimeout\""),
        ("spark.executor.memory: lots", "spark.executor.memory"),
    ],
)
def test_a_setting_that_spark_refuses_is_said_before_it_starts(
    spark: SparkSession, tmp_path: Path, setting: str, said: str
) -> None:
    (tmp_path / "conf").mkdir()
    path = tmp_path / "conf/local.yaml"
    taken = "kafka: embedded\nspark: {shop.region: EU, spark.sql.ansi.enabled: true}\n"
    path.write_text(taken, encoding="utf-8")
    sessions.check(configuration.load(tmp_path, "local"))
    path.write_text(f"kafka: embedded\nspark: {{{setting}}}\n", encoding="utf-8")
    with raises_code("CONF_INVALID", match=said, file=path):
        sessions.check(configuration.load(tmp_path, "local"))
