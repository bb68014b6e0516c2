"""A case done: in this process, or, where it has a step `kill`, by one after the other that is killed.

Such a process counts what it writes from that step on, and SIGKILL ends it, its JVM and its workers at one of
these places. The next one begins with the step that this one was at, as a run that is started again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fuzz import kept
from fuzz.deadly import Deadly, die
from fuzz.drive import Progress, Run
from fuzz.look import WrongError
from fuzz.make import Case
from headwater.storage import store

HANGS = 900  # seconds after which a process is taken to hang, on a machine that is busy


class EndedError(Exception):
    """A process of a case ended where it should not; `code` is that of the engine's error, if it was one."""

    def __init__(self, said: str, code: str = "") -> None:
        super().__init__(said)
        self.code = code


def run(case: Case) -> Counter[str]:
    """Do a case in a folder of its own; what was done, how often.

    Raises:
        WrongError: a table is not what it has to be.
        Exception: the engine stopped where it should not.
    """
    with TemporaryDirectory(prefix="headwater-fuzz-") as folder:
        if not has_kills(case):
            progress = Progress(Path(folder, "progress.json"))
            return Run(case, Path(folder, "project"), progress, lambda *_: None)()
        return _killed(case, Path(folder))


def has_kills(case: Case) -> bool:
    """Whether it takes more than one process."""
    return any(step["do"] == "kill" for step in case["steps"])


def _killed(case: Case, folder: Path) -> Counter[str]:
    """Do it by processes, until one comes to its end."""
    file, kills = kept.write(case, "", folder), 0
    while (status := _process(file)) == -signal.SIGKILL:
        kills += 1
    outcome = folder / "outcome.json"
    said: dict[str, Any] = json.loads(outcome.read_text(encoding="utf-8")) if outcome.exists() else {}
    if "wrong" in said:
        raise WrongError(said["wrong"])
    if "counts" not in said:
        raise EndedError(said.get("error", f"ended with {status}"), said.get("code", ""))
    return Counter(said["counts"]) + Counter({"killed": kills})


def _process(file: Path) -> int:
    """Let one process do what is left of a case; its exit status."""
    command = [sys.executable, "-m", "fuzz.processes", str(file)]
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
    )
    try:
        return process.wait(HANGS)
    except subprocess.TimeoutExpired:
        raise EndedError(f"hangs: not at its end after {HANGS} s", "HANGS") from None
    finally:
        with process:  # which closes its input
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _go_on(file: Path) -> dict[str, Any]:
    """Do what is left of a case; what is to be said of it."""
    case, root, progress = kept.read(file), file.parent / "project", Progress(file.parent / "progress.json")
    deadly = Deadly()
    store.use(deadly)
    try:
        return {"counts": Run(case, root, progress, deadly.arm)()}
    except WrongError as e:
        return {"wrong": str(e)}
    except Exception as e:
        traceback.print_exc()
        return {"error": f"{type(e).__name__}: {e}", "code": getattr(e, "code", "")}


def _die_with_the_parent() -> None:
    sys.stdin.read()
    die()


if __name__ == "__main__":
    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    given = Path(sys.argv[1])
    (given.parent / "outcome.json").write_text(json.dumps(_go_on(given)), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)
