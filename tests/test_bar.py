"""How far something is, on a terminal and in a pipe."""

from __future__ import annotations

from io import StringIO

import pytest
from terminal import Terminal

from headwater.common import bar
from headwater.common.wait import until


def test_a_pipe_gets_lines_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bar, "LINES", 0.05)
    out, done = StringIO(), 0
    with bar.shown("getting jars", 90_000_000, lambda: done, out):
        assert until(lambda: "0 of 90 MB\n" in out.getvalue(), within=30)
        done = 45_000_000
        assert until(lambda: "45 of 90 MB, " in out.getvalue(), within=30)
    assert out.getvalue().startswith("headwater: getting jars\n") and " s left\n" in out.getvalue()


def test_a_terminal_gets_a_bar_that_goes_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with bar.shown("getting jars", 90_000_000, lambda: 45_000_000, terminal.out):
        assert until(lambda: "45.0/90.0 MB" in terminal.raw, within=30)
    with bar.shown("making archives", out=terminal.out):
        assert until(lambda: "making archives" in terminal.raw, within=30)
    terminal.close()
    assert "\x1b[?25h" in terminal.raw


def test_what_is_left_follows_from_what_has_come() -> None:
    assert bar._so_far(10.0, 30_000_000, 90_000_000) == "30 of 90 MB, 20 s left"
    assert bar._so_far(10.0, 95_000_000, 90_000_000) == "90 of 90 MB"
    assert bar._so_far(12.4, 0, None) == "12 s so far"
