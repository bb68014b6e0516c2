"""Cases as files: one a line of JSON each step, so that a change is seen."""

from __future__ import annotations

import json
from pathlib import Path

from fuzz.make import Case


def write(case: Case, why: str, folder: Path) -> Path:
    """Keep a case, and why it failed; its file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"seed-{case['seed']}.json"
    path.write_text(
        json.dumps({"why": why.splitlines(), **case}, indent=1, ensure_ascii=True) + "\n", encoding="utf-8"
    )
    return path


def read(path: Path) -> Case:
    """A case that was kept."""
    case: Case = json.loads(path.read_text(encoding="utf-8"))
    return case
