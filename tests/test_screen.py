"""What a run shows of itself, on a terminal of 80 columns and in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO

import pytest
from terminal import Terminal

from headwater.common import listings
from headwater.common.progress import Board, FlowState
from headwater.common.wait import until
from headwater.query.inspect.status import Status
from headwater.run import picture
from headwater.run.screen import Screen

IDLE = Status("bronze.x", "running", 0.0, 0, 0, 0, None, None)
BUSY = replace(IDLE, rows=1_234_567, rows_per_second=99_999.0, quarantined=1_234, lag=12_345_678, age=1.0)
NAMES = [
    "bronze.iot_metrics",
    "silver.cpu_metrics",
    "gold.cpu_usage_5m_final",
    "gold.cpu_usage_5m_final->iot-avg-output",
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    yield terminal
    terminal.close()


def working(board: Board) -> list[Status]:
    board.stage = ""
    return [replace(BUSY, flow=name, rows=1_234_567 + at) for at, name in enumerate(NAMES)]


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("state", ["running", "starting"])
def test_a_table_fits_and_no_name_is_cut(width: int, state: str) -> None:
    flows = [replace(BUSY, flow=name, state=state) for name in NAMES]
    lines = "\n".join(line for line, _ in picture.table(flows, width, 24)).splitlines()
    names = [line.split()[0] for line in lines]
    assert [name for name in names if name in NAMES] == NAMES
    if width >= 80:
        assert max(map(len, lines)) <= width
        assert len(lines) <= 1 + len(NAMES) + 1  # at most the longest name has a line of its own
    assert all(text in "\n".join(lines) for text in ("1.2M", "12.3M", "1,234", "99,999", "1.0s"))


def test_flows_that_do_nothing_make_room() -> None:
    flows = [replace(IDLE, flow=f"gold.idle_{at}") for at in range(30)]
    flows[7] = replace(BUSY, flow="gold.busy")
    flows[9] = replace(IDLE, flow="gold.failed", state="failed")
    lines = picture.table(flows, 80, 21)
    assert [line.split()[0] for line, _ in lines] == ["flow", "gold.busy", "gold.failed", "and"]
    assert lines[-1][0] == "and 28 that have nothing to do" and lines[2][1] == "failed"
    assert len(picture.table(flows, 80, 40)) == 31


def test_what_a_run_has_done_points_to_what_it_held_back() -> None:
    flows = {"bronze.x": FlowState(9, 9, state="done"), "silver.y": FlowState(9, 6, 0, 3, state="done")}
    assert picture.summary(flows, listings.WIDE) == [
        "flow      read  written  quarantined",
        "bronze.x     9        9            0",
        "silver.y     9        6            3",
        "",
        "Rows were held back:",
        "headwater quarantine show silver.y",
    ]
    flows["silver.y"] = FlowState(9, 6, 3, 0, state="failed")
    assert picture.summary(flows)[0].split() == ["flow", "read", "written", "dropped", "state"]
    assert picture.summary(flows)[2].split() == ["silver.y", "9", "6", "3", "failed"]


def test_a_terminal_shows_each_step_then_the_flows_in_place(terminal: Terminal) -> None:
    board = Board(notices=StringIO())
    with Screen(board, terminal.out) as screen:
        board.stage = "starting Spark"
        assert until(lambda: "starting Spark · 0s" in terminal.raw, within=30)
        screen.watch(lambda: working(board))
        board.stage = ""
        assert until(lambda: "4 flows running" in terminal.raw, within=30)
        assert until(lambda: terminal.raw.count("12.3M") >= 8, within=30)  # it is drawn again
        assert "\x1b[1A" in terminal.raw, "in the same place"
        assert max(map(len, terminal.lines)) <= 80
        assert set(NAMES) <= {word for line in terminal.lines for word in line.split()}
        terminal.resize(120)
        assert until(lambda: "\x1b[2J" in terminal.raw, within=30)
    assert not terminal.raw.endswith("\x1b[?25l"), "the cursor is there"


def test_what_is_said_meanwhile_stands_above(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.out)
    board = Board()
    with Screen(board, terminal.out) as screen:
        screen.watch(lambda: working(board))
        assert until(lambda: "4 flows running" in terminal.raw, within=30)
        board.say("something has happened")
        assert until(lambda: "headwater: something has happened" in terminal.lines, within=30)


@pytest.mark.parametrize("forced", ["", "FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_pipe_gets_a_line_of_each_flow_that_has_changed(
    forced: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if forced:
        monkeypatch.setenv(forced, "1")
    board, out = Board(notices=StringIO()), StringIO()
    flows = [replace(IDLE, flow="bronze.x", rows=1), replace(IDLE, flow="gold.idle")]
    with Screen(board, out, lambda: "2 alerts" if flows[0].quarantined else "") as screen:
        screen._paper.every = 0.0
        board.stage = "starting Spark"
        assert until(lambda: "starting Spark" in out.getvalue(), within=30)
        screen.watch(lambda: list(flows))
        board.stage = ""
        assert until(lambda: "bronze.x" in out.getvalue(), within=30)
        flows[0] = replace(flows[0], age=7.0)  # which is no change
        flows[0] = replace(flows[0], rows=2, quarantined=1, state="waiting", age=90.0)
        assert until(lambda: "2 alerts" in out.getvalue(), within=30)
    lines = out.getvalue().splitlines()
    assert lines[lines.index("starting Spark") + 1 :] == [
        "2 flows running",
        "bronze.x: 1 rows, 0/s, lag 0",
        "bronze.x: 2 rows, 0/s, lag 0, age 1m30s, 1 quarantined, waiting",
        "2 alerts",
    ]


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_where_nobody_looks_any_more_the_run_goes_on(terminal: Terminal, kind: str) -> None:
    ours, theirs = os.pipe()
    out = terminal.out if kind == "terminal" else os.fdopen(theirs, "w")
    board = Board(notices=StringIO())
    looked = 0

    def look() -> list[Status]:
        nonlocal looked
        looked += 1
        return [replace(status, rows=looked) for status in working(board)]

    with Screen(board, out) as screen:
        screen._paper.every = 0.0
        screen.watch(look)
        assert until(lambda: looked >= 2, within=30)
        terminal.close() if kind == "terminal" else os.close(ours)
        assert until(lambda: not screen._thread.is_alive(), within=30)


def test_where_nothing_is_shown_nobody_looks() -> None:
    with Screen(Board(notices=StringIO()), None) as screen:
        screen.watch(lambda: pytest.fail("it has looked"))
        assert until(lambda: not screen._thread.is_alive(), within=30)


def test_a_look_that_fails_leaves_the_last_picture(terminal: Terminal) -> None:
    board = Board(notices=StringIO())
    looks = iter([working(board)])
    with Screen(board, terminal.out) as screen:
        screen._paper.every = 0.0
        screen.watch(lambda: next(looks))  # and StopIteration from then on
        assert until(lambda: "4 flows running · 1s" in terminal.raw, within=30)
        assert screen._thread.is_alive()
