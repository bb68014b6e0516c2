"""How long `headwater demo` takes from its start to each table's first rows, on a tree that is set up."""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDERS = ("bronze", "silver", "gold", "quality", "queries", "generators", "conf")
TURNS = 3


def measure() -> dict[str, Any]:
    """{table → seconds to its first rows, in a project without a lake; the median of three}, and CPU seconds.

    Standard error has the lines of each turn. The demo is asked once a second.
    """
    turns = [_turn() for _ in range(TURNS)]
    return {name: round(statistics.median(turn[name] for turn in turns), 1) for name in turns[0]}


def _turn() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        for name in FOLDERS:
            shutil.copytree(ROOT / name, Path(folder) / name)
        with (Path(folder) / "conf" / "local.yaml").open("a") as conf:
            conf.write("broker: {port: 0}\n")
        before, began = _cpu(), time.time()
        command = [sys.executable, "-m", "headwater", "demo", "--json", "--seconds", "1"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as demo:
            assert demo.stdout is not None
            first: dict[str, float] = {}
            for line in map(json.loads, demo.stdout):
                for flow in line.get("flows", ()) if line["event"] == "status" else ():
                    if flow["rows"]:
                        first.setdefault(flow["flow"], round(line["at"] - began, 1))
                if line["event"] == "result":
                    first[f"{line['table']}, queried"] = round(time.time() - began, 1)
        found = {**first, "CPU seconds": round(_cpu() - before, 1)}
        print(json.dumps(found), file=sys.stderr, flush=True)
        return found


def _cpu() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
