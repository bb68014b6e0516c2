"""Ctrl-C: one line and exit code 130 at any moment; a run that is at work ends as asked, with 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from terminal import Terminal

from headwater.common.wait import until
from headwater.connectors.kafka import embedded_broker
from headwater.project import conf, new

PROGRAM = [sys.executable, "-m", "headwater"]
_begun: list[subprocess.Popen[Any]] = []
SLOW = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project that reads files, so that it needs no broker."""
    for name, text in {
        "conf/local.yaml": "kafka: embedded\n",
        "bronze/raw.py": "import headwater as hw\nraw = hw.files('landing/*.json')\n",
        "landing/1.json": '{"n": 1}\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def begun(root: Path, *command: str) -> tuple[subprocess.Popen[str], psutil.Process]:
    running = subprocess.Popen(
        [*PROGRAM, *command, "--project", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _begun.append(running)
    return running, psutil.Process(running.pid)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Each command takes with it what it has started; where a test fails, it would compute for hours."""
    yield
    try:
        assert until(
            lambda: not any(running.poll() is not None and started_by(running) for running in _begun),
            within=60,
        )
    finally:
        for process in (process for running in _begun for process in started_by(running)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        while _begun:
            with _begun.pop():
                pass


def started_by(running: subprocess.Popen[Any]) -> list[psutil.Process]:
    """What lives of a command: itself, and what it has started, even where it has ended since."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if process.info["status"] != psutil.STATUS_ZOMBIE and os.getsid(process.pid) == running.pid:
                found.append(process)
    return found


def works(process: psutil.Process, seconds: float) -> bool:
    """Whether a process hears of signals, by a pipe of its own, and has computed so long."""
    fds = Path(f"/proc/{process.pid}/fd")
    pipes = 0
    for fd in fds.iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            pipes += os.readlink(fd).startswith("pipe:")
    return pipes >= 4 and process.cpu_times().user >= seconds


@pytest.mark.parametrize("seconds", [0, 0.6, 1, 3], ids=lambda seconds: f"after {seconds} s of work")
def test_a_query_that_is_interrupted_ends_in_one_line(root: Path, seconds: float) -> None:
    running, process = begun(root, "query", SLOW)
    assert until(lambda: works(process, seconds), within=60)
    at = time.monotonic()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (130, "", "headwater: interrupted\n")
    assert time.monotonic() - at < 20  # the bound of its grace, on a machine that does other things, too
    assert not list(root.glob(".headwater/lake/_scratch/*"))


def test_a_statement_that_is_left_ends_although_nothing_else_stops_it(root: Path) -> None:
    text = (
        "import os, signal, sys, threading, time\n"
        "from headwater import query\n"
        "def interrupt():\n"
        "    while time.process_time() < 3:\n"
        "        time.sleep(0.05)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "try:\n"
        "    query.run(sys.argv[1])\n"
        "except (KeyboardInterrupt, RuntimeError):\n"
        "    print('left')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, SLOW], cwd=root, capture_output=True, text=True, timeout=100
    )
    assert (done.stdout, done.stderr) == ("left\n", "")


def test_what_does_not_stop_is_ended(root: Path) -> None:
    text = (
        "import threading, time\n"
        "from headwater.common import interrupts\n"
        "interrupts.GRACE = 0.5\n"
        "interrupts.watch()\n"
        "while True:\n"
        "    try:\n"
        "        print('here', flush=True)\n"
        "        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
    )
    running = subprocess.Popen([sys.executable, "-c", text], stdout=-1, stderr=-1, text=True)
    assert running.stdout is not None and running.stdout.readline() == "here\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=30)[1] == "headwater: interrupted\n" and running.returncode == 130


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, "headwater: interrupted\n"), (signal.SIGTERM, "")]
)
def test_what_is_asked_to_end_ends_what_it_has_started_once(number: int, said: str) -> None:
    text = (
        "import time\n"
        "from headwater import cli\n"
        "from headwater.common import interrupts\n"
        "def work():\n"
        "    with interrupts.ending():\n"
        "        try:\n"
        "            print('here', flush=True)\n"
        "            time.sleep(60)\n"
        "        finally:\n"
        "            time.sleep(0.2)\n"
        "            print('ended', flush=True)\n"
        "interrupts.watch()\n"
        "cli.app = work\n"
        "cli.main()\n"
    )
    running = subprocess.Popen([sys.executable, "-c", text], stdout=-1, stderr=-1, text=True)
    assert running.stdout is not None and running.stdout.readline() == "here\n"
    for _ in range(2):  # as `timeout` does it
        running.send_signal(number)
    assert running.communicate(timeout=30) == ("ended\n", said)
    assert running.returncode == 128 + number


def test_a_signal_amid_waiting_for_what_it_sets_waits_for_no_lock() -> None:
    program = """
import os, signal, threading, time
from headwater.common import interrupts

stop = threading.Event()

def send():
    for _ in range(300):
        time.sleep(0.0005)
        os.kill(os.getpid(), signal.SIGINT)
        while not stop.is_set():
            time.sleep(0.0002)
        again.set()
        while stop.is_set():
            time.sleep(0.0002)
    os._exit(0)

again = threading.Event()
interrupts.ask(stop.set)
threading.Thread(target=send, daemon=True).start()
while True:
    while not stop.wait(0):
        pass
    again.wait()
    again.clear()
    interrupts.ask(stop.set)
    stop.clear()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_what_comes_after_a_cancelled_statement_is_not_stopped_by_a_thread_that_is_late() -> None:
    text = (
        "import os, signal, threading, time\n"
        "from headwater.common import interrupts\n"
        "hears = interrupts._is_interrupt\n"
        "def late(heard):\n"
        "    found = hears(heard)\n"
        "    time.sleep(0.5 if threading.current_thread().name == 'interrupts' else 0)\n"
        "    return found\n"
        "interrupts._is_interrupt, stopped = late, []\n"
        "interrupts.watch()\n"
        "try:\n"
        "    with interrupts.cancelling():\n"
        "        for _ in range(2):\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('cancelled')\n"
        "with interrupts.cancelling(), interrupts.stopping(lambda: stopped.append(True)):\n"
        "    time.sleep(1.5)\n"
        "print(stopped)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("cancelled\n[]\n", "", 0)


@pytest.mark.torture
def test_a_demo_that_is_asked_to_end_ends_its_broker(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    new.new(project)
    running, _ = begun(project, "demo")
    broker = embedded_broker(project, conf.load(project, "local"))
    assert until(lambda: broker.status().running, within=60)
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=100)[1] == "" and running.returncode == 128 + signal.SIGTERM
    assert not broker.status().running


def test_a_run_that_starts_ends_in_one_line(root: Path) -> None:
    running, process = begun(root, "run")
    assert until(lambda: any("java" in child.name() for child in process.children()), within=60)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, "headwater: interrupted\n")
    assert out.splitlines()[0] == "loading the project", "and below it the other steps of the start"


def test_a_run_that_is_asked_to_end_as_timeout_asks_ends_with_0(root: Path) -> None:
    running, _ = begun(root, "run", "--json")
    assert running.stdout is not None
    while '"event": "batch"' not in running.stdout.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGINT)  # `timeout -s INT` signals the process, then its group
    os.killpg(running.pid, signal.SIGINT)
    assert running.communicate(timeout=60)[1] == "" and running.returncode == 0


def test_a_run_in_a_terminal_shows_its_flows_and_ends_with_what_it_did(root: Path) -> None:
    (root / "landing" / "2.json").write_text("{\n")
    (root / "silver").mkdir()
    decode = "@hw.table(source='bronze.raw', decode=hw.json('n BIGINT'))"
    (root / "silver" / "s.py").write_text(
        f"import headwater as hw\n{decode}\ndef numbers(raw):\n    return raw\n"
    )
    terminal = Terminal()
    running = subprocess.Popen(
        [*PROGRAM, "run", "--project", str(root)],
        **dict.fromkeys(("stdin", "stdout", "stderr"), terminal.out),
        env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    )
    _begun.append(running)
    assert until(lambda: "loading the project · 0s" in terminal.raw, within=60)
    assert until(lambda: "2 flows running" in terminal.raw and " quarantined" in terminal.raw, within=60)
    terminal.resize(100)
    assert until(lambda: "\x1b[2J" in terminal.raw, within=60)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 0
    assert until(lambda: "headwater quarantine show silver.numbers" in terminal.lines, within=60)
    summary = [line.split() for line in terminal.lines if line]
    assert summary[-5:-2] == [
        ["flow", "read", "written", "quarantined"],
        ["bronze.raw", "2", "2", "0"],
        ["silver.numbers", "2", "1", "1"],
    ]
    assert max(map(len, terminal.lines)) <= 80
