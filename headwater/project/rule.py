"""One expectation of a table's suite as a rule: what it is about, and what becomes of a row that fails it.

What Great Expectations leaves open stands in the expectation's `meta.action`: `warn` (count), `drop` (leave
out, count), `quarantine` (move aside, to be replayed) or `fail` (stop the flow). Without one a critical
expectation quarantines and any other warns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headwater.errors import ProjectError, Where

Action = Literal["warn", "drop", "quarantine", "fail"]
Scope = Literal["batch", "table"]
ACTIONS: tuple[Action, ...] = ("warn", "drop", "quarantine", "fail")  # the weakest first
ORDERED = ("expect_column_values_to_be_increasing", "expect_column_values_to_be_decreasing")
RESERVED = ("malformed", "error", "future")  # rules of the engine's own

# A condition in SQL, as Great Expectations has it: a query for the rows that fail. One of this form is
# told from single rows. Great Expectations has braces of its own there, so those of SQL are doubled.
CONDITION = "unexpected_rows_expectation"
OF_ROWS = "SELECT * FROM {batch} WHERE "

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


class _Meta(BaseModel):
    """An expectation's `meta`: Great Expectations lets people keep there what they like."""

    model_config = ConfigDict(extra="allow", frozen=True)
    action: Action | None = None
    scope: Scope | None = None
    window: Annotated[int, Field(ge=1)] = 1_000
    max_age: str | None = None
    within: tuple[str, ...] = ()


class Expectation(BaseModel):
    """An expectation as it stands in a suite's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    type: str
    kwargs: dict[str, Any] = {}
    meta: _Meta | None = None
    id: str | None = None
    severity: Literal["critical", "warning", "info"] = "critical"
    description: str | None = None
    notes: str | list[str] | None = None
    rendered_content: Any = None


def rule_of(expectation: Expectation, where: Where) -> Rule:
    """The rule that an expectation makes.

    Args:
        expectation: as the file has it.
        where: what errors name.

    Raises:
        ProjectError: it asks for what can't be judged, or done with a row.
    """
    kwargs, meta = dict(expectation.kwargs), expectation.meta or _Meta()
    mostly = kwargs.get("mostly", 1)
    if isinstance(mostly, bool) or not isinstance(mostly, int | float) or not 0 <= mostly <= 1:
        raise ProjectError(
            f"{where}: mostly = {mostly!r}",
            code="EXPECTATION_INVALID",
            where=where,
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
            where=where,
            hint="write warn or fail",
        )
    critical: Action = "quarantine" if routes else "fail"
    scope = meta.scope or ("table" if expectation.type.startswith(OF_MANY) else "batch")
    if meta.max_age is not None:
        if (scope, expectation.type) != ("batch", "expect_column_max_to_be_between"):
            raise ProjectError(
                f"{where}: meta.max_age is for expect_column_max_to_be_between with meta.scope = 'batch'",
                code="EXPECTATION_INVALID",
                where=where,
            )
        if meta.action == "fail":
            raise ProjectError(
                f"{where}: a backlog is old however often it is tried",
                code="ACTION_NOT_POSSIBLE",
                where=where,
                hint="write action warn",
            )
        critical = "warn"
    if meta.within and expectation.type not in ORDERED:
        raise ProjectError(
            f"{where}: meta.within is for {' and '.join(ORDERED)}", code="EXPECTATION_INVALID", where=where
        )
    name = expectation.id or _name(expectation)
    if name in RESERVED:
        raise ProjectError(
            f"{where}: the id '{name}' is a rule of the engine",
            code="EXPECTATION_INVALID",
            where=where,
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


def expected(name: str, condition: str, action: Action, where: Where) -> Rule:
    """The rule that a definition gives its rows: `condition` (Spark SQL) is true of each.

    A row for which it is NULL fails, as one for which it is false.

    Raises:
        ProjectError: the name is one of the engine's.
    """
    literal = condition.replace("{", "{{").replace("}", "}}")
    literal += "\n" if "--" in literal else ""  # which a comment may be, to the end of its line
    kwargs = {"unexpected_rows_query": f"{OF_ROWS}({literal}) IS NOT TRUE"}
    meta = _Meta(action=action)
    return rule_of(Expectation(type=CONDITION, kwargs=kwargs, meta=meta, id=name), where)


def unless(rule: Rule, column: str) -> Rule:
    """A rule that `expected` has made, of rows for which a column of BOOLEAN is not true."""
    query = str(rule.kwargs["unexpected_rows_query"]).removeprefix(OF_ROWS)
    return replace(
        rule, kwargs={**rule.kwargs, "unexpected_rows_query": f"{OF_ROWS}{column} IS NOT TRUE AND ({query})"}
    )


def document(rule: Rule) -> dict[str, Any]:
    """A rule that `expected` has made, as it stands in a suite's file."""
    return {"type": rule.type, "kwargs": {**rule.kwargs}, "meta": {"action": rule.action}, "id": rule.id}


def _of_many(type: str, mostly: float) -> bool:
    return mostly < 1 or type.startswith(OF_MANY)


def _name(expectation: Expectation) -> str:
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
