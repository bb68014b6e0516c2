"""Set up this checkout: `make setup`. Needs Python's standard library only; each step is done once.

Each step says that it begins, how far it is (by the bars of pip and of the libraries on a terminal, else by a
line now and then), and how long it took.

Steps: Python environment `.venv` → requirements.lock (hashes checked) → this package, editable → Java →
JVM libraries → Java class archives. What each step was done for is noted in `.venv/headwater-setup.json`;
a step is done again when that has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "headwater-setup.json"
SUITABLE = ((3, 11), (3, 12), (3, 13))
FREE_BYTES = 3 * 10**9
SO_FAR = 15.0  # seconds
WITH_BARS = ("Python packages", "headwater", "JVM libraries")
TERMINAL = sys.stdout.isatty() and sys.stderr.isatty()
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")


def main() -> None:
    """Do the steps that are not done yet; one line each."""
    done, wanted = noted(), digests()
    if all(current(step, done, wanted) for step in wanted):
        print("set-up is current")
        return
    require_disk()
    for number, step in enumerate(wanted, start=1):
        if not current(step, done, wanted):
            with told(f"set-up {number}/{len(wanted)}: {step}", shown=TERMINAL and step in WITH_BARS):
                done[step] = {**wanted[step], "made": STEPS[step](done)}
            written = STAMP.with_name(f"{STAMP.name}.new")
            written.write_text(json.dumps(done, indent=1), encoding="utf-8")
            written.replace(STAMP)
    print("set-up is done; next: make demo")


@contextmanager
def told(step: str, *, shown: bool) -> Iterator[None]:
    """Say that a step begins, that it goes on (unless a bar shows it), and how long it took."""
    began, over = time.monotonic(), threading.Event()

    def tell() -> None:
        while not over.wait(SO_FAR):
            print(f"{step}: {time.monotonic() - began:.0f} s so far", flush=True)

    print(step, flush=True)
    if not shown:
        threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        over.set()
    print(f"{step}: done in {time.monotonic() - began:.0f} s", flush=True)


def digests() -> dict[str, dict[str, str]]:
    """What each step is done for: while it is the same, the step is current."""
    cache = os.environ.get("HEADWATER_CACHE", "") + os.pathsep + os.environ.get("XDG_CACHE_HOME", "")
    return {
        "Python environment": {"for": str(ROOT)},
        "Python packages": {"for": file_hash("requirements.lock")},
        "headwater": {"for": file_hash("pyproject.toml")},
        "Java": {"for": os.environ.get("JAVA_HOME", "")},
        "JVM libraries": {"for": file_hash("headwater/runtime/jars/jars.lock") + cache},
        "Java class archives": {
            "for": file_hash("headwater/runtime/jars/jars.lock") + file_hash("requirements.lock") + cache
        },
    }


def current(step: str, done: dict[str, dict[str, str]], wanted: dict[str, dict[str, str]]) -> bool:
    """Whether a step was done for what is there now, and what it made still is."""
    before = done.get(step, {})
    return before.get("for") == wanted[step]["for"] and Path(before.get("made", "/nowhere")).exists()


def noted() -> dict[str, dict[str, str]]:
    """The steps done; none in a fresh checkout, nor where what says so is damaged."""
    try:
        notes: dict[str, dict[str, str]] = json.loads(STAMP.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return notes


def make_environment(done: dict[str, dict[str, str]]) -> str:
    """`.venv`, made anew when it was made elsewhere (a moved checkout) or by an unsuitable Python."""
    python = suitable_python()
    usable = VENV_PYTHON.exists() and version_of(str(VENV_PYTHON)) in SUITABLE and not done
    if run(python, "-c", "import ensurepip, venv", quiet=True):
        fail(f"{python} can't make environments; run: apt-get install --yes python3-venv")
    if run(python, "-m", "venv", *([] if usable else ["--clear"]), str(VENV)):
        fail(f"{VENV} could not be made; see above")
    done.clear()
    return str(VENV_PYTHON)


def install_packages(done: dict[str, dict[str, str]]) -> str:
    """Everything in requirements.lock."""
    pip("--require-hashes", "-r", str(ROOT / "requirements.lock"))
    return str(VENV / "bin" / "pytest")


def install_headwater(done: dict[str, dict[str, str]]) -> str:
    """This package, editable; its dependencies and its build tools are in the lock."""
    pip("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    return str(VENV / "bin" / "headwater")


def have_java(done: dict[str, dict[str, str]]) -> str:
    """Java 17 or 21, installed where we may."""
    home, problem = module("headwater.runtime.java")
    if not home and shutil.which("apt-get") and os.geteuid() == 0:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "update", "--quiet", quiet=True, env=environment)
        for package in JAVA_PACKAGES:
            print(f"apt-get install {package}", flush=True)
            if run("apt-get", "install", "--yes", package, quiet=True, env=environment) == 0:
                break
        home, problem = module("headwater.runtime.java")
    if not home:
        fail(problem)
    return str(Path(home) / "bin" / "java")


def resolve_jars(done: dict[str, dict[str, str]]) -> str:
    """The JVM libraries of jars.lock, in the user's cache."""
    folder, problem = module("headwater.runtime.jars", "resolve", shown=True)
    if not folder:
        fail(problem)
    return folder


def archive_classes(done: dict[str, dict[str, str]]) -> str:
    """What lets Java start faster (about a minute); all works without it."""
    folder, problem = module("headwater.run.record_classes")
    if not folder:
        print(f"set-up: no Java class archives, so Java starts more slowly: {problem}", flush=True)
    return folder or str(VENV_PYTHON)


STEPS = {
    "Python environment": make_environment,
    "Python packages": install_packages,
    "headwater": install_headwater,
    "Java": have_java,
    "JVM libraries": resolve_jars,
    "Java class archives": archive_classes,
}


def suitable_python() -> str:
    """This Python, or the first on the PATH that is suitable."""
    names = ["python{}.{}".format(*version) for version in reversed(SUITABLE)]
    for python in [sys.executable, *filter(None, map(shutil.which, names))]:
        if version_of(python) in SUITABLE:
            return python
    fail(
        f"Python 3.11, 3.12 or 3.13 is needed, this is {sys.version.split()[0]}; "
        "install one, then run: make setup PYTHON=python3.11"
    )


def version_of(python: str) -> tuple[int, ...]:
    """(3, 11) for Python 3.11; () if it does not run."""
    asked = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    said = subprocess.run(
        asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    ).stdout
    return tuple(map(int, said.split()))


def require_disk() -> None:
    """Refuse before anything is downloaded."""
    free = shutil.disk_usage(ROOT).free
    if free < FREE_BYTES:
        fail(f"{ROOT}: 3 GB of free disk are needed, {free / 10**9:.1f} GB are there; make room")


def pip(*arguments: str) -> None:
    """pip install, or the end."""
    quietly = [*([] if TERMINAL else ["--quiet"]), "--disable-pip-version-check", "--no-input"]
    if run(str(VENV_PYTHON), "-m", "pip", "install", *quietly, *arguments):
        fail("pip could not install; see above, then run: make setup")


def module(*arguments: str, shown: bool = False) -> tuple[str, str]:
    """What a module of headwater prints, and what it complains of, unless that is `shown` as it comes."""
    asked, error = [str(VENV_PYTHON), "-m", *arguments], None if shown else subprocess.PIPE
    said = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, stderr=error, text=True, check=False)
    return (said.stdout.strip(), "") if said.returncode == 0 else ("", (said.stderr or "see above").strip())


def run(*command: str, quiet: bool = False, env: dict[str, str] | None = None) -> int:
    """A command's exit code; its output is shown unless `quiet`."""
    out = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, stdout=out, stderr=out, env=env, check=False).returncode


def file_hash(path: str) -> str:
    """The SHA-256 of a file of the checkout."""
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()


def fail(message: str) -> NoReturn:
    """The end, in one line."""
    sys.exit(f"set-up: {message}")


if __name__ == "__main__":
    main()
