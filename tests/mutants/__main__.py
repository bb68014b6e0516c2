"""`python -m tests.mutants [NAME …]`: plant each defect in a copy of the tree, and see whether it is found.

A mutant is a patch in this folder. Its first line says what it breaks, its second who must find it: the
simulator, or a test, as arguments of pytest. Ends with 1 where one survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SEED, SCHEDULES = 1, 2_000
AT_ONCE = 2
LONGEST = 1_800.0  # seconds


@dataclass(frozen=True)
class Mutant:
    """A planted defect: what it breaks, and who must find it."""

    patch: Path
    breaks: str
    finder: str

    @classmethod
    def read(cls, patch: Path) -> Mutant:
        """The mutant of a patch."""
        first, second = patch.read_text(encoding="utf-8").splitlines()[:2]
        return cls(patch, first.removeprefix("Breaks: "), second.removeprefix("Killed by: "))

    @property
    def command(self) -> list[str]:
        """Who must find it."""
        if self.finder == "the simulator":
            return [sys.executable, "-m", "tests.simulator", str(SEED), str(SCHEDULES), "--first"]
        _, *arguments = self.finder.split()
        return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]


def all_of() -> list[Mutant]:
    """The mutants, by name."""
    return [Mutant.read(patch) for patch in sorted(HERE.glob("*.patch"))]


def tried(mutant: Mutant) -> tuple[bool, str]:
    """Whether a mutant is found, and what that took."""
    with tempfile.TemporaryDirectory(prefix="headwater-mutant-") as folder:
        copy = Path(folder)
        for name in ("headwater", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        subprocess.run(["git", "apply", str(mutant.patch)], cwd=copy, check=True)
        began = time.monotonic()
        found = subprocess.run(
            mutant.command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        seconds = time.monotonic() - began
    if found.returncode not in (0, 1):  # neither green nor red: it did not run
        raise RuntimeError(f"{mutant.patch.name}: {found.stdout}{found.stderr}")
    how = found.stdout.strip().splitlines()[-1]
    why = next((line for line in found.stderr.splitlines() if line.startswith("seed ")), "")
    return found.returncode == 1, f"{seconds:.0f} s; {why or how}"


def main() -> int:
    """Try those that are named, or all; how it went."""
    wanted = [each for each in all_of() if not sys.argv[1:] or each.patch.stem in sys.argv[1:]]
    survived = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tries = {pool.submit(tried, mutant): mutant for mutant in wanted}
        for done in as_completed(tries):
            mutant, (is_found, how) = tries[done], done.result()
            survived += not is_found
            print(f"{'killed' if is_found else 'SURVIVED':9}{mutant.patch.stem:34}{how[:160]}", flush=True)
    print(f"{len(wanted)} mutants, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
