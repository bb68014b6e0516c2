"""Where the time of the tests goes: the longest files run first, and the end says what took how long.

`tests/durations.json` has the seconds of each file; `--note-durations` writes it anew.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("durations.json")
LONGEST = 15  # files that the summary names
PHASES = ("setup", "call", "teardown")


class Where:
    """A plugin of pytest; with pytest-xdist each worker has one, and the controller sums up."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._spent: dict[str, Counter[str]] = defaultdict(Counter)  # file → phase → seconds
        self._started: Counter[str] = Counter()
        sys.addaudithook(self._audit)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The longest files come first, and before them those that nobody knows."""
        known = json.loads(FILE.read_text()) if FILE.exists() else {}
        items.sort(key=lambda item: -known.get(_file(item.nodeid), float("inf")))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent[_file(report.nodeid)][report.when or "call"] += report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker has ended; one that crashed says nothing."""
        self._started.update(getattr(node, "workeroutput", {}).get("started", {}))

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["started"] = dict(self._started)
        elif self._config.getoption("--note-durations"):
            known = json.loads(FILE.read_text()) if FILE.exists() else {}
            known |= {file: round(spent.total(), 1) for file, spent in self._spent.items()}
            known = {file: known[file] for file in sorted(known) if (self._config.rootpath / file).exists()}
            FILE.write_text(json.dumps(known, indent=0) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._spent:
            return
        terminalreporter.section("where the time went")
        ranked = sorted(self._spent.items(), key=lambda pair: -pair[1].total())
        for file, spent in ranked[:LONGEST]:
            terminalreporter.write_line(f"{_said(spent)}  {file}")
        in_all = sum((spent for _, spent in ranked), Counter())
        terminalreporter.write_line(f"{_said(in_all)}  in all")
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._started.items()))
        terminalreporter.write_line(f"started by the tests: {kinds or 'no processes'}")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self._started[_kind(arguments[1])] += 1


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _said(spent: Counter[str]) -> str:
    phases = ", ".join(f"{phase} {spent[phase]:5.0f}" for phase in PHASES)
    return f"{spent.total():7.1f} s ({phases})"


def _kind(arguments: str | Sequence[Any]) -> str:
    """What a command line starts; a `headwater` may start a JVM and a broker of its own, unseen."""
    words = arguments.split() if isinstance(arguments, str) else [str(word) for word in arguments]
    program, line = Path(words[0]).name, " ".join(words)
    if "kafka.Kafka" in words:
        return "brokers"
    if program == "spark-submit":
        return "JVMs of Spark"
    if program == "headwater" or (program == "bash" and "headwater " in line):
        return "headwater processes"
    return "other processes"
