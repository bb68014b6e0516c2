"""A table's suite of expectations: `quality/<layer>.<table>.json`, a Great Expectations 1.x suite.

Great Expectations loads the same file as it is. What it leaves open stands in each expectation's
`meta.action`: `warn` (count), `drop` (leave out, count), `quarantine` (move aside, to be replayed) or
`fail` (stop the flow). Without one a critical expectation quarantines and any other warns. Rows of bronze
and of aggregates are judged by no flow: their suites are for whole tables.

https://docs.greatexpectations.io/docs/core/define_expectations/organize_expectation_suites
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headwater.common import durations
from headwater.errors import ProjectError, Where

Action = Literal["warn", "drop", "quarantine", "fail"]
Scope = Literal["batch", "table"]
ACTIONS: tuple[Action, ...] = ("warn", "drop", "quarantine", "fail")  # the weakest first


ORDERED = ("expect_column_values_to_be_increasing", "expect_column_values_to_be_decreasing")
_SHORTEST = 1_000_000  # microseconds between two validations of a table
RESERVED = ("malformed", "error", "future")  # rules of the engine's own

# Expectations about many rows at once, by the beginning of their names.
OF_MANY = (
    "expect_table_",
    "expect_column_mean_",
    "expect_column_median_",
    "expect_column_min_",
    "expect_column_max_",
    "expect_column_sum_",
    "expect_column_stdev_",
    "expect_column_quantile_",
    "expect_column_most_common_",
    "expect_column_distinct_",
    "expect_column_unique_value_count_",
    "expect_column_proportion_",
    "expect_column_kl_divergence_",
    "expect_column_value_z_scores_",
)


@dataclass(frozen=True)
class Rule:
    """One expectation of a suite.

    Attributes:
        id: what counts and quarantined rows name it by: the expectation's `id`, or its type and columns.
        type: Great Expectations' name of it, `expect_column_values_to_be_between`.
        kwargs: its arguments.
        action: what becomes of a row that fails it.
        where: file and place of it, for errors.
        said: whether the action stands in the file, or follows from the severity.
        scope: whether it is judged on each batch, or by `headwater quality run` on the whole table.
        window: rows over which a share (`mostly`) is judged at least.
        max_age: how old the greatest value of a column of time may be (`10m`).
        within: the columns that tell the rows among which a column may only grow, or fall.
    """

    id: str
    type: str
    kwargs: Mapping[str, Any]
    action: Action
    where: Where
    said: bool = False
    scope: Scope = "batch"
    window: int = 1_000
    max_age: str | None = None
    within: tuple[str, ...] = ()

    @property
    def mostly(self) -> float:
        """The share of rows that must pass; below 1 no single row fails the rule."""
        return float(self.kwargs.get("mostly", 1))

    @property
    def of_many(self) -> bool:
        """Whether it is about many rows at once, so that no single row fails it."""
        return _of_many(self.type, self.mostly)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about, in the order of its arguments."""
        return _columns(self.kwargs)


@dataclass(frozen=True)
class Suite:
    """The expectations of one table, in the order of the file.

    `every` is how often `headwater run` validates the whole table (`1h`); None: never.
    """

    table: str
    file: Path
    rules: tuple[Rule, ...] = field(default=())
    every: str | None = None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Meta(BaseModel):
    """An expectation's `meta`: Great Expectations lets people keep there what they like."""

    model_config = ConfigDict(extra="allow", frozen=True)
    action: Action | None = None
    scope: Scope | None = None
    window: Annotated[int, Field(ge=1)] = 1_000
    max_age: str | None = None
    within: tuple[str, ...] = ()


class _Expectation(_Strict):
    type: str
    kwargs: dict[str, Any] = {}
    meta: _Meta | None = None
    id: str | None = None
    severity: Literal["critical", "warning", "info"] = "critical"
    description: str | None = None
    notes: str | list[str] | None = None
    rendered_content: Any = None


class _SuiteMeta(BaseModel):
    """A suite's own `meta`, where people may keep what they like too."""

    model_config = ConfigDict(extra="allow", frozen=True)
    every: str | None = None


class _File(_Strict):
    name: str
    expectations: list[_Expectation] = []
    meta: _SuiteMeta | None = None
    notes: str | list[str] | None = None
    id: str | None = None


def find_suites(project: Path) -> list[Suite]:
    """The project's suites, by the names of their files.

    Raises:
        ProjectError: a file is no suite; it names the file and the expectation.
    """
    return [read(path) for path in sorted((project / "quality").glob("*.json"))]


def read(file: Path) -> Suite:
    """The suite in a file.

    Raises:
        ProjectError: it is no suite.
    """
    try:
        found = _File.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as e:  # ValidationError is one
        raise ProjectError(
            f"{file}: {_reason(e)}", code="SUITE_INVALID", table=file.stem, file=file
        ) from None
    rules: dict[str, Rule] = {}
    for at, expectation in enumerate(found.expectations, start=1):
        rule = _rule(expectation, Where(f"{file}: expectation {at}", file, file.stem))
        if rule.id in rules:
            raise ProjectError(
                f"{rule.where}: a second one is called {rule.id}",
                code="EXPECTATION_TWICE",
                table=rule.where.table,
                file=rule.where.file,
                hint="give it an id of its own",
            )
        rules[rule.id] = rule
    every = found.meta.every if found.meta else None
    try:
        too_often = every is not None and durations.parse(every) < _SHORTEST
    except ValueError as e:
        raise ProjectError(
            f"{file}: meta.every: {e}", code="SUITE_INVALID", table=file.stem, file=file
        ) from None
    if too_often:
        raise ProjectError(
            f"{file}: meta.every = '{every}' is less than a second",
            code="SUITE_INVALID",
            table=file.stem,
            file=file,
            hint="write one such as 1h",
        )
    return Suite(file.stem, file, tuple(rules.values()), every)


def fingerprint(suite: Suite) -> str:
    """Changes when what the suite expects does; white space and the order of keys aside."""
    found = json.loads(suite.file.read_text(encoding="utf-8"))
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def of_whole_table(suite: Suite) -> Suite:
    """The suite of a table whose rows no flow judges: `headwater quality run` alone does, all at once.

    A critical expectation without an action has `fail` there: the command fails, and a run that validates
    the table on a schedule stops its flow.

    Raises:
        ProjectError: an action that only the pass that writes a row can take.
    """
    for rule in suite.rules:
        if rule.said and rule.action in ("drop", "quarantine"):
            raise ProjectError(
                f"{rule.where}: {rule.id} has the action {rule.action}, but rows of {suite.table} are "
                "judged after they are written",
                code="ACTION_NOT_POSSIBLE",
                table=rule.where.table,
                file=rule.where.file,
                hint="write warn or fail, or expect it of a silver table",
            )
    rules = [replace(rule, action="warn" if rule.action == "warn" else "fail") for rule in suite.rules]
    return replace(suite, rules=tuple(rules))


def without_batches(suite: Suite, found: dict[str, Any]) -> tuple[Suite, dict[str, Any]]:
    """The suite and its file's content without what only flows can judge: each batch as a whole, and order.

    Args:
        suite: the suite.
        found: what its file holds.
    """
    kept = [
        rule.scope == "table" or not (rule.within or rule.type.startswith(OF_MANY)) for rule in suite.rules
    ]
    rules = tuple(rule for rule, keep in zip(suite.rules, kept, strict=True) if keep)
    expectations = [one for one, keep in zip(found["expectations"], kept, strict=True) if keep]
    return replace(suite, rules=rules), {**found, "expectations": expectations}


def _rule(expectation: _Expectation, where: Where) -> Rule:
    kwargs, meta = dict(expectation.kwargs), expectation.meta or _Meta()
    mostly = kwargs.get("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 <= mostly <= 1:
        raise ProjectError(
            f"{where}: mostly = {mostly!r}",
            code="EXPECTATION_INVALID",
            table=where.table,
            file=where.file,
            hint="write a share from 0 to 1",
        )
    if mostly == 1:
        kwargs.pop("mostly", None)
    routes = not _of_many(expectation.type, mostly)
    if meta.action in ("drop", "quarantine") and not routes:
        what = "a share of rows" if mostly < 1 else "many rows at once"
        raise ProjectError(
            f"{where}: it is about {what}, so no row is to {meta.action}",
            code="ACTION_NOT_POSSIBLE",
            table=where.table,
            file=where.file,
            hint="write warn or fail",
        )
    critical: Action = "quarantine" if routes else "fail"
    scope = meta.scope or ("table" if expectation.type.startswith(OF_MANY) else "batch")
    if meta.max_age is not None:
        if (scope, expectation.type) != ("batch", "expect_column_max_to_be_between"):
            raise ProjectError(
                f"{where}: meta.max_age is for expect_column_max_to_be_between with meta.scope = 'batch'",
                code="EXPECTATION_INVALID",
                table=where.table,
                file=where.file,
            )
        if meta.action == "fail":
            raise ProjectError(
                f"{where}: a backlog is old however often it is tried",
                code="ACTION_NOT_POSSIBLE",
                table=where.table,
                file=where.file,
                hint="write action warn",
            )
        critical = "warn"
    if meta.within and expectation.type not in ORDERED:
        raise ProjectError(
            f"{where}: meta.within is for {' and '.join(ORDERED)}",
            code="EXPECTATION_INVALID",
            table=where.table,
            file=where.file,
        )
    name = expectation.id or _name(expectation)
    if name in RESERVED:
        raise ProjectError(
            f"{where}: the id '{name}' is a rule of the engine",
            code="EXPECTATION_INVALID",
            table=where.table,
            file=where.file,
            hint="give it another",
        )
    return Rule(
        id=name,
        type=expectation.type,
        kwargs=kwargs,
        action=meta.action or (critical if expectation.severity == "critical" else "warn"),
        where=where,
        said=meta.action is not None,
        scope=scope,
        window=meta.window,
        max_age=meta.max_age,
        within=meta.within,
    )


def _of_many(type: str, mostly: float) -> bool:
    return mostly < 1 or type.startswith(OF_MANY)


def _name(expectation: _Expectation) -> str:
    """Type and columns: `values_to_be_between(usage)`."""
    short = expectation.type
    for prefix in ("expect_column_", "expect_"):
        short = short.removeprefix(prefix)
    return f"{short}({', '.join(_columns(expectation.kwargs))})"


def _columns(kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for key in ("column", "column_A", "column_B", "column_list", "column_set"):
        value = kwargs.get(key, [])
        found += [value] if isinstance(value, str) else value
    return tuple(found)


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part + 1 if isinstance(part, int) else part) for part in first["loc"])
        return f"{place}: {first['msg']}; mend the suite"
    return f"not JSON: {error}"
