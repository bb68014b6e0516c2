"""Which Java is taken: homes are folders with a `release` file and a `bin/java`."""

from __future__ import annotations

from pathlib import Path

import pytest
from raising import raises_code

from headwater.runtime import java


def fake_home(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(java, "JVM_FOLDER", tmp_path / "jvm")
    return tmp_path


def test_the_real_one_is_found() -> None:
    assert java.major_version(java.home()) in java.SUITABLE
    assert java.java().is_file()


def test_java_home_comes_first(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_home(nowhere / "jvm" / "a", "17.0.1")
    named = fake_home(nowhere / "named", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java.home() == named


def test_an_unsuitable_java_home_gives_way(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_home(nowhere / "named", "25.0.1")))
    suitable = fake_home(nowhere / "jvm" / "b", "17.0.15")
    assert java.home() == suitable


def test_java_on_the_path_is_followed_to_its_home(nowhere: Path) -> None:
    home = fake_home(nowhere / "opt" / "jdk", "21")
    (nowhere / "path").mkdir()
    (nowhere / "path" / "java").symlink_to(home / "bin" / "java")
    assert java.home() == home


def test_what_was_found_and_what_to_run_is_said(nowhere: Path) -> None:
    old = fake_home(nowhere / "jvm" / "old", "1.8.0_392")
    new = fake_home(nowhere / "jvm" / "new", "25.0.1")
    with raises_code("JAVA_MISSING") as e:
        java.home()
    assert f"{new} (Java 25)" in str(e.value)
    assert f"{old} (Java 8)" in str(e.value)
    assert java.INSTALL in str(e.value)


def test_no_java_at_all(nowhere: Path) -> None:
    with raises_code("JAVA_MISSING", match="found no Java; run: apt-get install"):
        java.home()
