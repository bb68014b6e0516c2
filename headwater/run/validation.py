"""Whole tables validated while a run goes on: `"meta": {"every": "1h"}` in a suite.

When a table is due follows from `ops.quality_results`, so a restart keeps the schedule: `every` after its
last validation; at once where it was never validated, or where the last one failed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from headwater.common import durations
from headwater.errors import FlowError
from headwater.errors.causes import describe
from headwater.flows.context import Context
from headwater.operations.validation import results
from headwater.project.paths import engine_folder
from headwater.storage import log

_POLL = 1.0  # seconds: how soon the first rows of a table are noticed
_AGAIN = 60.0  # seconds until a validation that could not be made is tried again, at most


class Schedule:
    """Validates the tables of a run whose suites say how often.

    Args:
        context: the run.
        tables: its tables.
    """

    def __init__(self, context: Context, tables: Sequence[str]) -> None:
        self._context = context
        suites = context.project.suites
        self._every = {
            name: durations.parse(every).total_seconds()
            for name in tables
            if name in suites and (every := suites[name].every) is not None
        }
        last = results.dates(context.project) if self._every else {}
        ahead = time.time() - time.monotonic()
        self._due = {  # by a clock that nobody sets
            name: last[name][0].timestamp() + every - ahead if name in last and last[name][1] else 0.0
            for name, every in self._every.items()
        }

    def run(self) -> None:
        """Validate each table whenever it is due, until the run ends."""
        while self._due and not self._context.stop.is_set():
            try:
                self.step()
            except BaseException as e:  # where the lake can't be read just now
                self._context.board.say_once("what is due can not be validated", describe(e))
            soonest = min(self._due.values()) - time.monotonic()
            self._context.stop.wait(min(max(soonest, 0.1), _POLL))

    def step(self) -> None:
        """Validate the tables that are due and hold something."""
        places = self._context.lake.places()
        for name, due in self._due.items():
            if due <= time.monotonic() and name in places and log.head(places[name].path) > 0:
                self._validate(name)
                if self._context.stop.is_set():
                    return

    def _validate(self, name: str) -> None:
        from headwater.operations.validation import validate  # Great Expectations takes seconds to import

        context, began = self._context, time.monotonic()
        try:
            done = validate.run(context.project, name, docs=engine_folder(context.project.root) / "data_docs")
        except Exception as e:  # the flows go on: what they write is judged when it can be
            self._due[name] = began + min(self._every[name], _AGAIN)
            if not context.stop.is_set():
                context.board.say(f"{name} could not be validated: {describe(e)}")
            return
        self._due[name] = began + self._every[name]
        (validation,) = done.validations
        missed = [row for row in results.rows(done.id, validation) if row["status"] != "passed"]
        found = {row["expectation"]: results.found(row) for row in missed}
        context.board.validated(name, validation.version, validation.seconds, found)
        stops = [row["expectation"] for row in missed if (row["status"], row["action"]) == ("failed", "fail")]
        if stops:
            said = ", ".join(f"{rule} ({found[rule]})" for rule in stops)
            context.refuse(
                name,
                FlowError(
                    f"{name}: version {validation.version} fails {said}; nothing more is written to it",
                    code="EXPECTATION_FAILED",
                    table=name,
                    file=f"quality/{name}.json",
                    hint=f"mend its rows, its definition or quality/{name}.json, then run again",
                ),
            )
