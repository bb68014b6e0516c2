"""The JVM libraries: the lock, the cache, and what is said when a jar is not what it should be.

Nothing here resolves over the network but the fixture, which uses the user's own cache.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from raising import raises_code

from headwater.runtime import jars
from headwater.runtime.jars import ivy, lock
from headwater.runtime.jars.__main__ import _module


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the resolved jars in a cache of this test; returns their folder."""
    resolved = jars.resolve()
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    shutil.copytree(resolved, jars.jars_folder())
    return jars.jars_folder()


@pytest.fixture
def ivy_copies(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ivy finds nothing but this folder's jars: a repository that a test can damage."""
    repository = tmp_path / "repository"
    shutil.copytree(cache, repository)

    def retrieve(jar_set: lock.JarSet, folder: Path) -> str:
        shutil.copytree(repository / jar_set, folder / jar_set)
        return ""

    monkeypatch.setattr(ivy, "retrieve", retrieve)
    return repository


def test_every_locked_jar_is_there_with_its_bytes() -> None:
    locked = lock.parse(lock.lock_file().read_text())
    folder = jars.resolve()
    assert lock.first_different(locked, folder) is None
    assert {path.name for path in jars.spark_jars() + jars.kafka_jars()} == {jar.name for jar in locked}


def test_what_is_shown_of_the_way_goes_by_their_size() -> None:
    size = sum(path.stat().st_size for path in jars.spark_jars() + jars.kafka_jars())
    assert abs(size - jars.BYTES) < 0.05 * size


def test_sparks_jars_bring_no_second_version_of_pysparks() -> None:
    shipped = {_module(path.name) for path in ivy.pyspark_jars().glob("*.jar")}
    assert not shipped & {_module(path.name) for path in jars.spark_jars()}


def test_the_lock_reads_back_as_written() -> None:
    text = lock.lock_file().read_text()
    assert lock.render(lock.parse(text)) == text


def test_a_cut_jar_is_named_on_use_and_replaced_by_resolve(cache: Path, ivy_copies: Path) -> None:
    victim = jars.spark_jars()[0]
    victim.write_bytes(victim.read_bytes()[:-1])
    with raises_code("JAR_MISSING", match=rf"{victim.name}: missing, or not the jar .* resolve"):
        jars.spark_jars()
    jars.resolve()
    assert victim in jars.spark_jars()


def test_resolve_replaces_a_jar_of_the_same_size(cache: Path, ivy_copies: Path) -> None:
    victim = jars.kafka_jars()[0]
    good = victim.read_bytes()
    victim.write_bytes(bytes(len(good)))
    jars.resolve()
    assert victim.read_bytes() == good


def test_a_jar_that_is_not_the_locked_one_is_refused(cache: Path, ivy_copies: Path) -> None:
    shutil.rmtree(cache)
    (ivy_copies / "spark" / "commons-pool2-2.13.1.jar").write_bytes(b"something else")
    with raises_code(
        "JAR_DIFFERS",
        file="commons-pool2-2.13.1.jar",
        match=r"commons-pool2-2.13.1.jar: its SHA-256 is .*jars.lock says",
    ):
        jars.resolve()
    assert not cache.exists()


def test_a_jar_that_cannot_be_had_is_named(cache: Path, ivy_copies: Path) -> None:
    shutil.rmtree(cache)
    (ivy_copies / "kafka" / "re2j-1.8.jar").unlink()
    with raises_code(
        "JAR_NOT_FETCHED", file="re2j-1.8.jar", match=r"re2j-1.8.jar: could not be had .*check the network"
    ):
        jars.resolve()
    assert not cache.exists()


def test_a_cache_that_can_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()  # whose folder nobody can make, root neither
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "file"))
    with raises_code("JAR_NOT_FETCHED", match=f"{tmp_path}/file/jars/.*as HEADWATER_CACHE, then run"):
        jars.resolve()


def test_ivy_itself_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv("HEADWATER_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    with raises_code(
        "JAR_NOT_FETCHED",
        file="HdrHistogram-2.2.2.jar",
        match=r"HdrHistogram-2.2.2.jar: could not be had .*not found",
    ):
        jars.resolve()


def test_what_a_killed_resolve_left_is_cleared(cache: Path, ivy_copies: Path) -> None:
    left = cache.parent / f"{jars.WORK}killed"
    (left / "spark").mkdir(parents=True)
    jars.resolve()
    assert not left.exists()
