"""Asking the process that writes a table: an answer, or none where nobody is there to give one."""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from raising import raises_code

from headwater.errors import NOWHERE, FlowError, Where
from headwater.storage import json_file, lease, mailbox
from headwater.storage.mailbox import Request

ASKED = Request("replay", "a rule", None, "f00")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The lease's half that Python holds."""
    fd = os.open(folder / "lease", os.O_RDWR | os.O_CREAT)
    os.write(fd, b'{"pid": 4711}')
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


def serve(folder: Path, answer: Any) -> list[Request]:
    """Take requests until there was one; answer it, or not."""
    seen: list[Request] = []
    deadline = time.monotonic() + 300
    while not seen and time.monotonic() < deadline:
        for request, to in mailbox.take(folder):
            seen.append(request)
            if answer is not None:
                mailbox.answer(to, lambda: answer, NOWHERE)
    return seen


def test_who_holds_the_lease_answers(tmp_path: Path) -> None:
    seen: list[Request] = []
    with held(tmp_path):
        assert lease.holder(tmp_path) == 4711
        server = threading.Thread(target=lambda: seen.extend(serve(tmp_path, {"n": 1})))
        server.start()
        assert mailbox.ask(tmp_path, ASKED) == {"done": {"n": 1}}
        server.join()
    assert seen == [ASKED]
    assert list((tmp_path / "requests").iterdir()) == []


def test_nobody_answers_where_nobody_holds_the_lease(tmp_path: Path) -> None:
    assert lease.holder(tmp_path) is None
    assert mailbox.ask(tmp_path, ASKED) is None
    assert list((tmp_path / "requests").iterdir()) == []
    assert list(mailbox.take(tmp_path)) == []


def test_a_holder_that_ends_without_an_answer_is_not_waited_for(tmp_path: Path) -> None:
    said: list[mailbox.Answer | None] = []
    with held(tmp_path):
        asker = threading.Thread(target=lambda: said.append(mailbox.ask(tmp_path, ASKED)))
        asker.start()
        assert serve(tmp_path, None) == [ASKED]
    asker.join(30)
    assert said == [None]


@pytest.mark.parametrize("how", ["the answer can not be written", "who took it was killed"])
def test_a_request_that_was_dropped_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    said: list[mailbox.Answer | None] = []
    with held(tmp_path):
        asker = threading.Thread(target=lambda: said.append(mailbox.ask(tmp_path, ASKED)))
        asker.start()
        if how.startswith("who"):
            assert serve(tmp_path, None) == [ASKED]
            mailbox.drop(tmp_path)
        else:
            deadline, write = time.monotonic() + 300, json_file.write
            while not (asked := list(mailbox.take(tmp_path))) and time.monotonic() < deadline:
                continue

            def full(file: Path, content: Mapping[str, Any]) -> None:
                if file.suffix == ".answer":
                    raise OSError("the disk is full")
                write(file, content)

            monkeypatch.setattr(json_file, "write", full)
            with pytest.raises(OSError, match="full"):
                mailbox.answer(asked[0][1], lambda: 1, NOWHERE)
            monkeypatch.setattr(json_file, "write", write)
        assert serve(tmp_path, 2) == [ASKED]
        asker.join(30)
    assert said == [{"done": 2}]


@pytest.mark.parametrize("content", ['{"action": "replay", "of a newer version": 1}', "{", "[]"])
def test_a_request_that_is_not_understood_is_refused_and_the_next_one_is_taken(
    tmp_path: Path, content: str
) -> None:
    with held(tmp_path):
        requests = tmp_path / "requests"
        requests.mkdir()
        if content.startswith('{"'):
            json_file.write(requests / "0.json", json.loads(content))
        else:
            (requests / "0.json").write_text(content)
        json_file.write(requests / "1.json", asdict(ASKED))
        assert [request for request, _ in mailbox.take(tmp_path)] == [ASKED]
        with raises_code("REQUEST_FAILED", match="can't be read, or is of another version"):
            mailbox.done(json_file.read(requests / "0.answer", hint=""))


def test_why_not_is_raised(tmp_path: Path) -> None:
    assert mailbox.done({"done": 5}) == 5
    why = FlowError("broken", code="PROCESS_FAILED", table="silver.x", file="silver/x.py", hint="mend it")
    mailbox.refuse(tmp_path / "answer", why)
    with raises_code("PROCESS_FAILED", match="^broken; mend it$", table="silver.x", file="silver/x.py"):
        mailbox.done(json_file.read(tmp_path / "answer", hint=""))


@pytest.mark.parametrize("error", [ValueError("no number"), SystemExit(3), FlowError("no", code="JVM_ENDED")])
def test_who_asks_is_told_whatever_ends_what_serves(tmp_path: Path, error: BaseException) -> None:
    """A function of the project that exits ends its flow, and nobody else answers a request that is taken."""

    def do() -> None:
        raise error

    with suppress(SystemExit):
        mailbox.answer(tmp_path / "answer", do, Where("silver/x.py", table="silver.x"))
    code = error.code if isinstance(error, FlowError) else "REQUEST_FAILED"
    with raises_code(code, match=re.escape(str(error))):
        mailbox.done(json_file.read(tmp_path / "answer", hint=""))


def test_the_lease_that_is_taken_is_of_the_generation_that_is_live_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "g0001", *[tmp_path / "g0002"] * 3]  # the first was live until it was held
    lake: Any = SimpleNamespace(flow_folder=lambda _: folders.pop(0))
    held = list[Path]()

    def taken(_: str, folder: Path) -> Any:
        held.append(folder)
        return SimpleNamespace(folder=folder, release=lambda: held.remove(folder))

    monkeypatch.setattr(lease, "Lease", taken)
    assert lease.of_live(lake, "silver.x").folder == tmp_path / "g0002"
    assert held == [tmp_path / "g0002"]
