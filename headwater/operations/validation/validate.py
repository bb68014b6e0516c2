"""Whole tables against their suites, by Great Expectations itself: `headwater quality run`.

1. Choose the tables: the one that is named, or every one that has a suite and holds something.
2. Judge each at a pinned version, on Spark. What Great Expectations can't judge there is an `error`.
3. Keep the results in `ops.quality_results`, one commit a run.
4. Build the Data Docs.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.common import times
from headwater.errors import QualityError, QueryError
from headwater.operations.validation import docs as pages
from headwater.operations.validation import gx, results
from headwater.operations.validation.results import Outcome, Validation
from headwater.project.load import Project
from headwater.project.rule import Rule
from headwater.project.suite import Suite, fingerprint, of_whole_table, without_batches
from headwater.query import past
from headwater.query.sources import Source
from headwater.storage import log, summary
from headwater.storage.lake import Lake, Place

SAMPLES = 5  # failing values of an expectation in the Data Docs, where samples are asked for


@dataclass(frozen=True)
class Validated:
    """One run of the command.

    Attributes:
        id: names it in `ops.quality_results` and in the Data Docs.
        validations: by table, in the order in which rows flow.
        skipped: tables that have a suite and hold nothing yet.
        docs: the first page of the Data Docs.
    """

    id: str
    validations: tuple[Validation, ...]
    skipped: tuple[str, ...]
    docs: Path

    @property
    def passed(self) -> bool:
        """Whether every expectation that does more than warn has passed."""
        outcomes = (outcome for validation in self.validations for outcome in validation.outcomes)
        return all(outcome.status == "passed" or outcome.action == "warn" for outcome in outcomes)


def run(
    project: Project, table: str | None = None, *, docs: Path, at: str | None = None, samples: bool = False
) -> Validated:
    """Validate tables, keep the results, build the Data Docs.

    Args:
        project: the project.
        table: the table; None: every one that has a suite and holds something.
        docs: the folder of the Data Docs.
        at: a version of the one table, or an ISO 8601 time (UTC unless it names a zone); None: the newest.
        samples: show up to 5 failing values of each expectation in the Data Docs.

    Raises:
        QualityError: no suite, nothing written, no such past, or `docs` is a folder of something else.
        ProjectError: an expectation that Great Expectations does not know, or with wrong arguments.
    """
    pages.check(docs)
    lake = Lake(project.conf.lake)
    suites, skipped = _choose(project, lake, table, at)
    run_id = f"{times.now():%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"
    validations = tuple(
        _validate(project, suite, lake.place(suite.table), at, SAMPLES if samples else 0) for suite in suites
    )
    results.append(lake, run_id, validations)
    return Validated(run_id, validations, skipped, pages.build(docs, run_id, validations))


def _choose(
    project: Project, lake: Lake, table: str | None, at: str | None
) -> tuple[list[Suite], tuple[str, ...]]:
    """The suites to judge by, and the tables that hold nothing to be judged."""
    suites = {name: project.suites[name] for name in project.names() if name in project.suites}
    places = lake.places()
    if table is not None:
        project.definition(table)
        if table not in suites:
            raise QualityError(
                f"{table} has no suite quality/{table}.json",
                code="SUITE_MISSING",
                table=table,
                hint=f"run: headwater quality suggest {table} --write",
            )
        if table not in places:
            raise QualityError(
                f"{table} holds nothing yet",
                code="TABLE_EMPTY",
                table=table,
                hint=f"run: headwater run {table} --once",
            )
        return [suites[table]], ()
    if at is not None:
        raise QualityError(
            f"--at {at} is the past of one table",
            code="VERSION_AMBIGUOUS",
            hint=f"name it: headwater quality run TABLE --at {at}",
        )
    if not suites:
        raise QualityError(
            f"{project.root / 'quality'} has no suite",
            code="SUITE_MISSING",
            hint="run: headwater quality suggest TABLE --write",
        )
    if not suites.keys() & places.keys():
        raise QualityError(
            f"{', '.join(suites)}: none holds anything yet",
            code="TABLE_EMPTY",
            hint="run: headwater run --once",
        )
    written = [suite for name, suite in suites.items() if name in places]
    return written, tuple(name for name in suites if name not in places)


def _validate(project: Project, suite: Suite, place: Place, at: str | None, samples: int) -> Validation:
    from headwater.query import on_spark

    source = Source(place.name, place.path)
    version = _version(source, at)
    if summary.changes_in_place(place):
        suite = of_whole_table(suite)
    judged = without_batches(suite)
    rows = on_spark.frame(project.conf, source, version)
    validated_at, began = times.now(), time.monotonic()
    document = gx.judge(judged, rows, samples=samples)
    seconds = time.monotonic() - began
    said = {result["expectation_config"]["id"]: result for result in document["results"]}
    return Validation(
        table=place.name,
        generation=place.generation,
        version=version,
        suite=fingerprint(suite),
        validated_at=validated_at,
        seconds=round(seconds, 3),
        outcomes=tuple(_outcome(rule, said[rule.id]) for rule in judged.rules),
        document={"result": document, "suite": judged.document},
    )


def _version(source: Source, at: str | None) -> int:
    try:
        version = past.versions([source], at)[source.name]
    except QueryError as e:
        raise QualityError(e.message, **e.data()) from None
    return log.head(source.path) if version is None else version


def _outcome(rule: Rule, said: dict[str, Any]) -> Outcome:
    found, error = said["result"], said["exception_info"]
    observed = gx.observed(rule.type, found.get("observed_value"))
    return Outcome(
        expectation=rule.id,
        type=rule.type,
        kwargs=json.dumps(rule.kwargs, ensure_ascii=False),
        action=rule.action,
        status="error" if error["raised_exception"] else "passed" if said["success"] else "failed",
        element_count=found.get("element_count"),
        unexpected_count=found.get("unexpected_count"),
        unexpected_percent=found.get("unexpected_percent"),
        observed_value=None if observed is None else json.dumps(observed, ensure_ascii=False),
        message=error["exception_message"],
    )
