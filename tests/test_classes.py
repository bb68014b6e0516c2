"""Java's class archives: the JVMs use those that set-up made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater import classes, java, jvm
from headwater.broker import EmbeddedBroker


def maps(pid: int | None) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_spark_starts_with_its_archive(spark: SparkSession) -> None:
    assert str(classes.file("spark")) in maps(jvm.pid())


def test_the_broker_starts_with_its_archive(tmp_path: Path) -> None:
    own = EmbeddedBroker(tmp_path / "kafka")
    try:
        own.start()
        assert str(classes.file("broker")) in maps(own.status().pid)
    finally:
        own.stop()


def test_an_archive_of_other_libraries_is_left_alone_silently() -> None:
    ran = subprocess.run(
        [str(java.java()), *classes.options("spark"), "-version"], capture_output=True, text=True, check=True
    )
    assert "cds" not in ran.stdout + ran.stderr and "version" in ran.stderr


def test_without_an_archive_there_are_no_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    classes.file.cache_clear()
    try:
        assert classes.options("spark") == classes.options("broker") == []
        named = {classes.file(program).name.rsplit("-", 1)[0] for program in classes.PROGRAMS}
        assert named == {"headwater-spark", "headwater-broker"}
    finally:
        classes.file.cache_clear()
