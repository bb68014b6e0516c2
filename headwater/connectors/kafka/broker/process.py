"""The broker's process: its command, and finding, watching and ending it and no other.

A PID alone proves nothing (it may have been given to another program), so the process is known by its
command line, which names the settings file of its data folder, and is held by a pidfd while it is
watched or signalled.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.runtime import class_archive, java
from headwater.runtime.jars import kafka_jars

MAIN = "kafka.Kafka"
STORAGE_TOOL = "kafka.tools.StorageTool"
LOGGING = Path(__file__).parent / "log4j2.properties"
PERFORMANCE = "KAFKA_JVM_PERFORMANCE_OPTS"  # as in Kafka's own scripts: replaces the choice of collector


def run_storage_tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Kafka's StorageTool to its end (about 1 s); its output is in `stdout`."""
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *class_archive.options("broker", record=False)]
    command = [str(java.java()), *flags, STORAGE_TOOL, *arguments]
    return subprocess.run(
        command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def launch(settings: Path, log: Path, heap: str) -> subprocess.Popen[bytes]:
    """Start the broker in a session of its own, so that it outlives this process and its terminal."""
    performance = os.environ.get(PERFORMANCE, "-XX:+UseSerialGC").split()
    flags = [f"-Xmx{heap}", *performance, *class_archive.options("broker"), "-XX:+ExitOnOutOfMemoryError"]
    flags += ["-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={LOGGING}"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(java.java()), *flags, MAIN, str(settings)],
            cwd=settings.parent,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def find(settings: Path) -> int | None:
    """The PID of the broker that runs with this settings file; None when there is none."""
    pids = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())
    return next((pid for pid in pids if _is_broker(pid, settings)), None)


@contextmanager
def held(settings: Path) -> Iterator[int | None]:
    """A pidfd of the running broker, which can't come to mean another process; None when there is none."""
    pid = find(settings)
    handle = None if pid is None else _open(pid)
    try:
        # Asked again once it is held: it may have ended and its number been given away in between.
        yield handle if pid is not None and _is_broker(pid, settings) else None
    finally:
        if handle is not None:
            os.close(handle)


def ended(handle: int, within: float) -> bool:
    """Wait up to `within` seconds for the held process to end; whether it has."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(within * 1000))


def end(handle: int, *, patience: float) -> bool:
    """SIGTERM, and after `patience` seconds SIGKILL; whether the held process has ended."""
    for sent, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
        if ended(handle, 0):
            return True
        signal.pidfd_send_signal(handle, sent)
        if ended(handle, wait):
            return True
    return False


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _is_broker(pid: int, settings: Path) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # it has just ended, or is another user's
    return command.rstrip(b"\0").split(b"\0")[-2:] == [MAIN.encode(), os.fsencode(settings)]


def _environment() -> dict[str, str]:
    return {**os.environ, "CLASSPATH": os.pathsep.join(map(str, kafka_jars()))}
