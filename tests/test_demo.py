"""What the demo decides: which system it shows, and when it has shown enough."""

from __future__ import annotations

import threading
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from raising import raises_code

from headwater.common.progress import Board
from headwater.common.report import BatchReport
from headwater.query.inspect.status import Status
from headwater.run import demo

STATUS = Status("silver.x", "running", 0.0, 9, 0, 0, None, None)
TABLES = ["silver.x", "gold.y"]


class Working:
    """A run that is at work: what its flows are seen to be, look after look, the last one for good."""

    def __init__(self, *looks: list[Status]) -> None:
        self.board = Board(notices=StringIO())
        for name in TABLES:
            self.board.batch(BatchReport(flow=name, sequence=0, seconds=0.0, at=0.0))
        self._looks, self.alive, self._over = list(looks), True, threading.Event()

    def statuses(self) -> list[Status]:
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def wait(self, seconds: float) -> None:
        pass


def drain(run: Any) -> dict[str, int]:
    return demo._drain(run, run, TABLES)


def test_it_ends_when_all_that_was_produced_is_read() -> None:
    behind = [replace(STATUS, lag=7), replace(STATUS, flow="gold.y", lag=None)]
    assert drain(Working(behind, behind, [STATUS])) == {}


def test_it_says_what_was_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "DRAIN_LIMIT", -1.0)
    run = Working([STATUS, replace(STATUS, flow="gold.y", lag=7)])
    assert drain(run) == {"gold.y": 7}
    run.board.flows["silver.x"].batches = 0
    assert drain(run) == {"silver.x": 0, "gold.y": 7}


def test_it_waits_for_nothing_once_a_flow_has_failed() -> None:
    run = Working([replace(STATUS, lag=7)])
    run.board.state("silver.x", "failed", "for a reason")
    assert drain(run) == {"silver.x": 7}


def test_the_system_that_is_shown_unasked(tmp_path: Path) -> None:
    with raises_code("UNKNOWN_GENERATOR"):
        demo._first(tmp_path)
    (tmp_path / "generators").mkdir()
    for name, first in (("shop", "shop"), ("bus", "bus"), ("iot", "iot"), ("_helper", "iot")):
        (tmp_path / "generators" / f"{name}.py").touch()
        assert demo._first(tmp_path) == first


def test_what_ends_its_run_is_told_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lost.append)

    class Refused:
        def __call__(self) -> int:
            raise PermissionError(13, "Permission denied", "/srv/lake")

        def stop(self) -> None:
            pass

    with demo.Background(Refused()) as running:  # type: ignore[arg-type]
        running.wait(30.0)
    with pytest.raises(PermissionError, match="/srv/lake"):
        running.result()
    assert not lost
