"""What Spark has said of a text is kept: it is not asked again, and says the same as if it were."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.project import sql, watermarks
from headwater.project.load import load_project
from headwater.runtime import cache, jvm

ROOT = Path(__file__).parent.parent
asked: list[str] = []


@dataclass(frozen=True)
class Answer:
    """As answers are: of several types, one in another."""

    text: str
    parts: tuple[int | str | None, ...] = ()
    inner: tuple[tuple[str, str], ...] = ()


def ask(text: str) -> Answer:
    """What a text says."""
    if not text:
        raise ValueError("it says nothing")
    asked.append(text)
    return Answer(text, (1, "1", None), (("a", "b"),))


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache that holds nothing."""
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    cache._answers.cache_clear()
    yield tmp_path / "answers"
    cache._answers.cache_clear()


def anew(text: str) -> Answer:
    """The answer to another process, and whether it was asked for."""
    cache._answers.cache_clear()
    return cache.kept(ask)(text)


def test_a_text_is_asked_of_once() -> None:
    asked.clear()
    first = anew("one")
    assert [anew("one"), anew("one")] == [first, first] and asked == ["one"]
    assert anew("two") == Answer("two", (1, "1", None), (("a", "b"),)) and asked == ["one", "two"]


def test_an_error_is_not_kept(empty: Path) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="it says nothing"):
            anew("")
    assert not list(empty.rglob("*.json"))


def test_another_spark_is_asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked.clear()
    anew("one")
    monkeypatch.setattr(cache, "version", lambda package: "99")
    anew("one")
    assert asked == ["one", "one"]


@pytest.mark.parametrize("held", [b"", b"{}", b"00000000", b"a3a6bf43{}", b"\xff" * 20])
def test_what_can_not_be_read_is_asked_anew(empty: Path, held: bytes) -> None:
    asked.clear()
    first = anew("one")
    (file,) = empty.rglob("*.json")
    file.write_bytes(held)
    assert (anew("one"), anew("one"), asked) == (first, first, ["one", "one"])


def test_a_flipped_byte_does_not_change_an_answer(empty: Path) -> None:
    first = anew("one")
    (file,) = empty.rglob("*.json")
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert anew("one") == first


def test_a_cache_that_can_not_be_written_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "file"))
    asked.clear()
    assert anew("one") == anew("one") and asked == ["one", "one"]


def test_answers_that_nobody_asks_for_go(empty: Path) -> None:
    anew("one")
    (mine,) = empty.iterdir()
    for name, age in {"old": cache.UNUSED + 60, "lately": 60}.items():
        (empty / name).mkdir()
        os.utime(empty / name, (time.time() - age,) * 2)
    anew("one")
    assert {folder.name for folder in empty.iterdir()} == {mine.name, "lately"}


def test_the_project_is_read_from_answers_as_from_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of each text of the reference project is what Spark says of it."""
    texts = [path.read_text() for path in ROOT.glob("*/*.sql") if path.parent.name != "queries"]
    queries = [
        table.sql.bare([f"`{name}`" for name in table.inputs])
        for table in load_project(ROOT).tables.values()
        if table.sql is not None
    ]
    questions = [
        *((sql._said, text) for text in texts),
        *((watermarks._windows, query) for query in queries if "window(" in query.lower()),
        (watermarks._interval, "1 hour 30 seconds"),
        (jvm._columns, "a STRING, b STRUCT<c: ARRAY<INT>>"),
    ]
    for question, _ in questions:
        question.cache_clear()
    said = [question(text) for question, text in questions]
    for question, _ in questions:
        question.cache_clear()
    monkeypatch.setattr(jvm, "gateway", lambda: pytest.fail("the JVM was asked"))
    assert texts and [question(text) for question, text in questions] == said
