"""Java's class archives: the JVMs use those that set-up made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.connectors.kafka.broker import EmbeddedBroker
from headwater.run import prepare
from headwater.runtime import class_archive, java, jvm


def maps(pid: int | None) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_spark_starts_with_its_archive(spark: SparkSession) -> None:
    assert str(class_archive.file("spark")) in maps(jvm.pid())


def test_the_broker_starts_with_its_archive(tmp_path: Path) -> None:
    own = EmbeddedBroker(tmp_path / "kafka")
    try:
        own.start()
        assert str(class_archive.file("broker")) in maps(own.status().pid)
    finally:
        own.stop()


def test_an_archive_of_other_libraries_is_left_alone_silently() -> None:
    ran = subprocess.run(
        [str(java.java()), *class_archive.options("spark"), "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cds" not in ran.stdout + ran.stderr and "version" in ran.stderr


def test_without_an_archive_there_are_no_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    class_archive.file.cache_clear()
    try:
        assert class_archive.options("spark") == class_archive.options("broker") == []
        named = {class_archive.file(program).name.rsplit("-", 1)[0] for program in class_archive.PROGRAMS}
        assert named == {"headwater-spark", "headwater-broker"}
    finally:
        class_archive.file.cache_clear()


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Python environment without archives."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    class_archive.file.cache_clear()
    yield tmp_path
    class_archive.file.cache_clear()


@pytest.mark.parametrize("program", ["import sys; sys.exit('no room')", "0"])
def test_on_first_use_they_are_made_or_it_is_said_once_why_not(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    monkeypatch.setattr(prepare, "RECORD", ["-c", program])
    prepare.prepare()
    said = capsys.readouterr().err
    assert said.startswith("headwater: archiving Java's classes")
    assert ("there is no such archive: no room\n" in said) == (program != "0")
    for program_of in class_archive.PROGRAMS if program == "0" else ():
        class_archive.file(program_of).touch()
    prepare.prepare()
    assert capsys.readouterr().err == ""
    prepare.prepare(again=True)
    assert ("no room" in capsys.readouterr().err) == (program != "0")
