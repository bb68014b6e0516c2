"""What the flows are doing: one line per batch for machines, one row per flow for people."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TextIO

from headwater.errors import Data


@dataclass(frozen=True)
class Batch:
    """One committed batch.

    Attributes:
        flow: the table, or the name of the sink or alert.
        sequence: the batch's number.
        version: the table's version that has it; -1 for flows without a table.
        rows_in: rows read.
        rows_out: rows written to the table, or sent.
        quarantined: rows that went to the quarantine; rows_in = quarantined + the function's input.
        seconds: from pin to seal.
        at: when it was sealed, seconds since the epoch.
        newest: Kafka's timestamp of the newest record in the table then, milliseconds since the epoch.
        dropped: rows that an expectation dropped.
        late: rows that came too late for their window, once for each.
        failed: {rule → rows that fail it}; `malformed` stands for rows that can't be decoded, `error` for
            those that make the definition fail.
        missed: {rule about many rows at once → what was found, and what was expected}.
    """

    flow: str
    sequence: int
    version: int
    rows_in: int
    rows_out: int
    quarantined: int
    seconds: float
    at: float
    newest: int | None = None
    dropped: int = 0
    late: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)

    def freshness(self) -> float | None:
        """How old, in seconds, the newest record was when a reader could first see it."""
        return None if self.newest is None else max(0.0, self.at - self.newest / 1000)


@dataclass
class FlowState:
    """What is known of one flow since the run began."""

    rows_in: int = 0
    rows_out: int = 0
    quarantined: int = 0
    batches: int = 0
    state: str = "starting"
    error: str = ""
    missed: frozenset[str] = frozenset()
    recent: deque[Batch] = field(default_factory=lambda: deque(maxlen=200))

    def rate(self, seconds: float = 5.0) -> float:
        """Rows read per second, over the last `seconds`."""
        since = time.time() - seconds
        return sum(batch.rows_in for batch in list(self.recent) if batch.at >= since) / seconds


class Board:
    """The state of every flow; safe to use from any thread.

    Args:
        lines: where each batch is written as one JSON line; None: nowhere.
        notices: where a person is told of what happens to a flow.
    """

    def __init__(self, lines: TextIO | None = None, notices: TextIO = sys.stderr) -> None:
        self._lock = threading.Lock()
        self._lines = lines
        self._notices = notices
        self._validations: dict[str, frozenset[str]] = {}  # what each table's last one missed
        self.flows: dict[str, FlowState] = {}

    def batch(self, batch: Batch) -> None:
        """A batch was sealed."""
        with self._lock:
            flow = self.flows.setdefault(batch.flow, FlowState())
            flow.rows_in += batch.rows_in
            flow.rows_out += batch.rows_out
            flow.quarantined += batch.quarantined
            flow.batches += 1
            flow.state, flow.error = "running", ""
            flow.recent.append(batch)
            for rule in sorted(batch.missed.keys() - flow.missed):
                self._say(f"{batch.flow}: batch {batch.sequence}: {rule}: {batch.missed[rule]}")
            flow.missed = frozenset(batch.missed)
            if self._lines is not None:
                print(json.dumps({"event": "batch", **asdict(batch)}), file=self._lines, flush=True)

    def state(self, name: str, state: str, error: str = "", data: Data | None = None) -> None:
        """A flow started, waits, is trying again, failed or ended; a failure is said at once."""
        with self._lock:
            flow = self.flows.setdefault(name, FlowState())
            said = flow.state == state and flow.error == error
            flow.state, flow.error = state, error
            if error and not said:
                code = f" [{data['code']}]" if data else ""
                self._say(f"{name} {state}: {error}{code}")
            if self._lines is not None and not said:
                event = {"event": "state", "flow": name, "state": state, "error": error, **(data or {})}
                print(json.dumps(event), file=self._lines, flush=True)

    def validated(self, table: str, version: int, seconds: float, missed: dict[str, str]) -> None:
        """A whole table was validated; `missed` is {expectation that did not pass → what was found}."""
        with self._lock:
            before = self._validations.get(table, frozenset())
            for rule in sorted(missed.keys() - before):
                self._say(f"{table}: version {version}: {rule}: {missed[rule]}")
            self._validations[table] = frozenset(missed)
            if self._lines is not None:
                event = {"event": "validation", "table": table, "version": version, "seconds": seconds}
                print(json.dumps({**event, "missed": missed}), file=self._lines, flush=True)

    def say(self, what: str) -> None:
        """Tell a person."""
        with self._lock:
            self._say(what)

    def batches(self, name: str) -> int:
        """How many batches a flow has sealed in this run."""
        with self._lock:
            return self.flows.setdefault(name, FlowState()).batches

    def failed(self) -> list[str]:
        """The flows that stopped for good."""
        with self._lock:
            return [name for name, flow in self.flows.items() if flow.state == "failed"]

    def _say(self, what: str) -> None:
        print(f"headwater: {what}", file=self._notices, flush=True)
