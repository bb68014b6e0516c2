"""What the flows are doing: one line per batch for machines, one row per flow for people."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from headwater.common.report import BatchReport
from headwater.errors import Data

LONG = 3  # waits of a flow, each longer than the one before, after which who asks it something is told


@dataclass
class FlowState:
    """What is known of one flow since the run began."""

    rows_in: int = 0
    rows_out: int = 0
    dropped: int = 0
    quarantined: int = 0
    batches: int = 0
    waits: int = 0  # since the last batch
    state: str = "starting"
    error: str = ""
    missed: frozenset[str] = frozenset()
    recent: deque[BatchReport] = field(default_factory=lambda: deque(maxlen=200))

    def rate(self, seconds: float = 5.0) -> float:
        """Rows read per second, over the last `seconds`."""
        since = time.time() - seconds
        return sum(report.rows_in for report in list(self.recent) if report.at >= since) / seconds


class Lines(Protocol):
    """What text can be written to."""

    def write(self, text: str, /) -> int:
        """Add a text."""

    def flush(self) -> None:
        """Have it written."""


class Board:
    """The state of every flow; safe to use from any thread.

    Args:
        lines: where each batch is written as one JSON line; None: nowhere.
        notices: where a person is told of what happens to a flow; None: standard error.

    Attributes:
        stage: what the run itself is doing before its flows begin, and when they are to end; "": they work.
        flows: what is known of each flow, in the order in which they were first heard of.
    """

    def __init__(self, lines: Lines | None = None, notices: Lines | None = None) -> None:
        self._lock = threading.Lock()
        self._lines = lines
        self._notices = notices
        self._validations: dict[str, frozenset[str]] = {}  # what each table's last one missed
        self._told: set[str] = set()
        self.stage = "starting"
        self.flows: dict[str, FlowState] = {}

    def expect(self, flows: Iterable[str]) -> None:
        """These will work, and rows go through them in this order."""
        with self._lock:
            for name in flows:
                self.flows.setdefault(name, FlowState())

    def batch(self, report: BatchReport) -> None:
        """A batch was sealed."""
        with self._lock:
            flow = self.flows.setdefault(report.flow, FlowState())
            flow.rows_in += report.rows_in
            flow.rows_out += report.rows_out
            flow.dropped += report.dropped
            flow.quarantined += report.quarantined
            flow.batches += 1
            flow.waits = 0
            flow.state, flow.error = "running", ""
            flow.recent.append(report)
            for rule in sorted(report.missed.keys() - flow.missed):
                self._say(f"{report.flow}: batch {report.sequence}: {rule}: {report.missed[rule]}")
            flow.missed = frozenset(report.missed)
            self._event({"event": "batch", **report.json()})

    def state(self, name: str, state: str, error: str = "", data: Data | None = None) -> None:
        """A flow started, waits, is trying again, failed or ended; a failure is said at once."""
        with self._lock:
            flow = self.flows.setdefault(name, FlowState())
            said = flow.state == state and flow.error == error
            flow.state, flow.error = state, error
            flow.waits += state == "waiting"
            if error and not said:
                code = f" [{data['code']}]" if data else ""
                self._say(f"{name} {state}: {error}{code}")
            if not said:
                event = {"event": "state", "flow": name, "state": state, "error": error, **(data or {})}
                self._event(event)

    def validated(self, table: str, version: int, seconds: float, missed: dict[str, str]) -> None:
        """A whole table was validated; `missed` is {expectation that did not pass → what was found}."""
        with self._lock:
            before = self._validations.get(table, frozenset())
            for rule in sorted(missed.keys() - before):
                self._say(f"{table}: version {version}: {rule}: {missed[rule]}")
            self._validations[table] = frozenset(missed)
            event = {"event": "validation", "table": table, "version": version, "seconds": seconds}
            self._event({**event, "missed": missed})

    def say(self, what: str) -> None:
        """Tell a person."""
        with self._lock:
            self._say(what)

    def say_once(self, what: str, why: str) -> None:
        """Tell a person what each look finds anew, the first time."""
        with self._lock:
            if what not in self._told:
                self._told.add(what)
                self._say(f"{what}: {why}")

    def batches(self, name: str) -> int:
        """How many batches a flow has sealed in this run."""
        with self._lock:
            return self.flows[name].batches if name in self.flows else 0

    def failed(self) -> list[str]:
        """The flows that stopped for good."""
        with self._lock:
            return [name for name, flow in self.flows.items() if flow.state == "failed"]

    def waiting(self) -> dict[str, str]:
        """Those that have waited more than `LONG` times since their last batch, each with why it waits."""
        with self._lock:
            flows = self.flows.items()
            return {name: flow.error for name, flow in flows if flow.state == "waiting" and flow.waits > LONG}

    def _event(self, event: Mapping[str, Any]) -> None:
        if self._lines is not None:
            try:
                print(json.dumps(event), file=self._lines, flush=True)
            except OSError:  # nobody reads it any more: the flows go on
                self._lines = None

    def _say(self, what: str) -> None:
        with suppress(OSError):  # likewise
            print(f"headwater: {what}", file=self._notices or sys.stderr, flush=True)
