"""Flows rest between two batches while somebody holds them, and no longer than that one lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from headwater.storage.hold import hold, turn

HOLDER = """
import sys, time
from pathlib import Path
from headwater.storage.hold import hold
with hold([Path(each) for each in sys.argv[1:]], 10) as at_rest:
    print(at_rest, flush=True)
    time.sleep(600)
"""


class Flow(threading.Thread):
    """Does batch after batch, without a pause between."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self.stop = threading.Event()
        self.batches = 0
        self.moved = threading.Condition()

    def run(self) -> None:
        while not self.stop.is_set():
            with turn(self._folder, self.stop) as mine:
                if mine:
                    with self.moved:
                        self.batches += 1
                        self.moved.notify_all()

    def goes_on(self, within: float = 30.0) -> bool:
        with self.moved:
            before = self.batches
            return self.moved.wait_for(lambda: self.batches > before + 1, within)

    def end(self) -> None:
        self.stop.set()
        self.join(30)
        assert not self.is_alive()


def test_flows_rest_while_they_are_held(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    flows = [Flow(folder) for folder in folders]
    for flow in flows:
        flow.start()
    assert all(flow.goes_on() for flow in flows)
    for _ in range(20):  # each time, although they hardly pause
        with hold(folders, 30) as at_rest:
            assert at_rest
            before = [flow.batches for flow in flows]
            assert not flows[0].goes_on(0.05)
            assert [flow.batches for flow in flows] == before
        assert all(flow.goes_on() for flow in flows)
    with hold(folders, 30):
        flows[0].end()  # a run ends while it is held
    flows[1].end()


def test_what_does_not_come_to_rest_holds_nobody_up(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    other = Flow(folders[1])
    other.start()
    with turn(folders[0], threading.Event()), hold(folders, 0.2) as at_rest:
        assert not at_rest
        assert other.goes_on()
    other.end()


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    flow.start()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "True\n"
    assert not flow.goes_on(0.2)
    os.kill(holder.pid, signal.SIGKILL)
    assert flow.goes_on()
    holder.wait()
    flow.end()
