"""What validations found, kept in the Delta table `ops.quality_results`: a row for each expectation.

One commit a run, under the lake's lock: runs of several processes come one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from headwater import query
from headwater.errors import QualityError
from headwater.project.load import Project
from headwater.project.rule import Action
from headwater.storage.lake import Lake
from headwater.storage.target import Target

Status = Literal["passed", "failed", "error"]

TABLE = "ops.quality_results"
COLUMNS = pa.schema(
    [
        ("run_id", pa.string()),
        ("table_name", pa.string()),
        ("version", pa.int64()),
        ("generation", pa.int32()),
        ("expectation", pa.string()),
        ("type", pa.string()),
        ("kwargs", pa.string()),
        ("action", pa.string()),
        ("status", pa.string()),
        ("success", pa.bool_()),
        ("element_count", pa.int64()),
        ("unexpected_count", pa.int64()),
        ("unexpected_percent", pa.float64()),
        ("observed_value", pa.string()),
        ("message", pa.string()),
        ("validated_at", pa.timestamp("us", tz="UTC")),
        ("suite", pa.string()),
        ("seconds", pa.float64()),
    ]
)
_LAST = f"""SELECT * FROM {TABLE}
    QUALIFY dense_rank() OVER (PARTITION BY table_name ORDER BY validated_at DESC, run_id DESC) = 1"""


@dataclass(frozen=True)
class Outcome:
    """One expectation, judged on a whole table.

    Attributes:
        expectation: its name, as `Rule.id` has it.
        type: Great Expectations' name of it.
        kwargs: its arguments, as JSON.
        action: what its failing means: `warn`, or for the command any other alike.
        status: `error` where Great Expectations could not judge it.
        element_count, unexpected_count: the rows, and those of them that fail; None where the table as a
            whole is judged.
        unexpected_percent: 0 to 100, of the rows whose column is not NULL.
        observed_value: what was found where the table as a whole is judged, as JSON.
        message: why it could not be judged; None elsewhere.
    """

    expectation: str
    type: str
    kwargs: str
    action: Action
    status: Status
    element_count: int | None
    unexpected_count: int | None
    unexpected_percent: float | None
    observed_value: str | None
    message: str | None


@dataclass(frozen=True)
class Validation:
    """One table, validated.

    Attributes:
        table, generation, version: what was read.
        suite: the fingerprint of the suite.
        validated_at: when it began (UTC).
        seconds: how long it took.
        outcomes: one for each expectation, in the order of the suite.
        document: Great Expectations' result as JSON, and the suite as its file has it: for Data Docs.
    """

    table: str
    generation: int
    version: int
    suite: str
    validated_at: datetime
    seconds: float
    outcomes: tuple[Outcome, ...]
    document: dict[str, Any]


def append(lake: Lake, run_id: str, validations: Sequence[Validation]) -> int:
    """Add what one run found, in one commit; the table's new version."""
    place = lake.create(TABLE, COLUMNS, comment="What quality runs found", properties={})
    with lake.alone():
        found = [row for validation in validations for row in rows(run_id, validation)]
        table = Target(place)
        version = table.append(table.put([pa.Table.from_pylist(found, schema=COLUMNS)], "found"))
        table.checkpoint()
    return version


def rows(run_id: str, validation: Validation) -> list[dict[str, Any]]:
    """What a validation found, a row for each expectation.

    Columns: see `Outcome` and `Validation`; `success` is NULL where an
    expectation could not be judged, `seconds` is how long the whole table took, `validated_at` is UTC.
    """
    return [
        {
            "run_id": run_id,
            "table_name": validation.table,
            "version": validation.version,
            "generation": validation.generation,
            **asdict(outcome),
            "success": None if outcome.status == "error" else outcome.status == "passed",
            "validated_at": validation.validated_at,
            "suite": validation.suite,
            "seconds": validation.seconds,
        }
        for outcome in validation.outcomes
    ]


def found(row: Mapping[str, Any]) -> str:
    """What a row says was found, in words: for people."""
    if row["message"] is not None:
        return str(row["message"])
    if row["observed_value"] is not None:
        return f"observed {row['observed_value']}"
    if row["unexpected_count"] is None:
        return ""
    of = f" of {row['element_count']:,}" if row["element_count"] is not None else ""
    return f"{row['unexpected_count']:,}{of} unexpected"


def dates(project: Project) -> dict[str, tuple[datetime, bool]]:
    """When each table was last validated (UTC), and whether all that stops its flow passed; no Spark."""
    if TABLE not in Lake(project.conf.lake).places():
        return {}
    passed = "bool_and(action <> 'fail' OR status <> 'failed')"
    sql = f"SELECT table_name, max(validated_at), {passed} FROM ({_LAST}) GROUP BY table_name"
    return {name: (at, ok) for name, at, ok in query.run(sql, project=project.root, env=project.env).rows}


def last(project: Project, table: str | None = None) -> list[dict[str, Any]]:
    """The rows of each table's last validation, those that have not passed first; no Spark is started.

    Raises:
        QualityError: there is none yet, or none of `table`.
    """
    if table is not None:
        project.definition(table)
    if TABLE not in Lake(project.conf.lake).places():
        raise QualityError(
            "nothing has been validated yet", code="NOT_VALIDATED", hint="run: headwater quality run"
        )
    found = query.run(_LAST, project=project.root, env=project.env)
    kept = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    order = {name: at for at, name in enumerate(project.names())}
    wanted = [row for row in kept if table in (None, row["table_name"])]
    if not wanted:
        raise QualityError(
            f"{table} has not been validated yet",
            code="NOT_VALIDATED",
            table=table,
            hint=f"run: headwater quality run {table}",
        )
    return sorted(
        wanted,
        key=lambda row: (
            order.get(row["table_name"], len(order)),
            row["status"] == "passed",
            row["expectation"],
        ),
    )
