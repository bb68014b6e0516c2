"""A table's suite of expectations: `quality/<layer>.<table>.json`, a Great Expectations 1.x suite.

Great Expectations loads the same file as it is; what the engine makes of each expectation is a `Rule`, see
`headwater.project.rule`. Rows of bronze and of aggregates are judged by no flow: their suites are for whole
tables.

https://docs.greatexpectations.io/docs/core/define_expectations/organize_expectation_suites
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from headwater.common import durations
from headwater.errors import ProjectError, Where
from headwater.errors.causes import describe
from headwater.project.definitions import Table
from headwater.project.rule import OF_MANY, Expectation, Rule, document, rule_of

_SHORTEST = timedelta(seconds=1)  # between two validations of a table


@dataclass(frozen=True)
class Suite:
    """The expectations of one table.

    Attributes:
        table: its name.
        file: the suite's; where there is none, that of the table's definition.
        rules: its expectations: those of the file, then those of the definition.
        every: how often `headwater run` validates the whole table (`1h`); None: never.
        document: the same for Great Expectations: what the file holds, and the definition's expectations.
    """

    table: str
    file: Path
    rules: tuple[Rule, ...] = field(default=())
    every: str | None = None
    document: dict[str, Any] = field(default_factory=dict)


class _SuiteMeta(BaseModel):
    """A suite's own `meta`, where people may keep what they like too."""

    model_config = ConfigDict(extra="allow", frozen=True)
    every: str | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    expectations: list[Expectation] = []
    meta: _SuiteMeta | None = None
    notes: str | list[str] | None = None
    id: str | None = None


def read(file: Path) -> Suite:
    """The suite in a file.

    Raises:
        ProjectError: it is no suite.
    """
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
        found = _File.model_validate(held)
    except ValueError as e:  # ValidationError is one
        raise ProjectError(
            f"{file}: {_reason(e)}", code="SUITE_INVALID", table=file.stem, file=file
        ) from None
    rules: dict[str, Rule] = {}
    for at, expectation in enumerate(found.expectations, start=1):
        where = Where(f"{file}: expectation {at}", file, file.stem)
        try:
            rule = rule_of(expectation, where)
        except (AttributeError, KeyError, TypeError, ValueError) as e:  # an argument of another kind
            raise ProjectError(
                f"{where}: {expectation.type}: {describe(e)}",
                code="EXPECTATION_INVALID",
                where=where,
                hint="mend its arguments",
            ) from e
        _add(rules, rule)
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
    return Suite(file.stem, file, tuple(rules.values()), every, {"expectations": [], **held})


def joined(suite: Suite | None, table: Table) -> Suite:
    """The suite of a table (None: it has no file) with the expectations of its definition.

    Raises:
        ProjectError: two have one name.
    """
    found = suite or Suite(table.name, table.file, document={"name": table.name, "expectations": []})
    rules = {rule.id: rule for rule in found.rules}
    for rule in table.expectations:
        _add(rules, rule)
    expectations = [*found.document["expectations"], *map(document, table.expectations)]
    return replace(
        found, rules=tuple(rules.values()), document={**found.document, "expectations": expectations}
    )


def _add(rules: dict[str, Rule], rule: Rule) -> None:
    if rule.id in rules:
        raise ProjectError(
            f"{rule.where}: a second one is called {rule.id}",
            code="EXPECTATION_TWICE",
            where=rule.where,
            hint="give it an id of its own",
        )
    rules[rule.id] = rule


def fingerprint(suite: Suite) -> str:
    """Changes when what the suite expects does; white space and the order of keys aside."""
    return hashlib.sha256(json.dumps(suite.document, sort_keys=True).encode()).hexdigest()[:16]


def of_whole_table(suite: Suite) -> Suite:
    """The suite of a table whose rows no flow judges: `headwater quality run` alone does, all at once.

    A critical expectation without an action has `fail` there: the command fails, and a run that validates
    the table on a schedule stops its flow.

    Raises:
        ProjectError: an action that only the pass that writes a row can take, or what is asked of batches.
    """
    for rule in suite.rules:
        if _is_of_batches(rule):
            raise ProjectError(
                f"{rule.where}: {rule.id} is expected of batches, but rows of {suite.table} are judged all "
                "at once, after they are written",
                code="EXPECTATION_INVALID",
                where=rule.where,
                hint="leave meta.scope, meta.within and meta.max_age out",
            )
        if rule.said and rule.action in ("drop", "quarantine"):
            raise ProjectError(
                f"{rule.where}: {rule.id} has the action {rule.action}, but rows of {suite.table} are "
                "judged after they are written",
                code="ACTION_NOT_POSSIBLE",
                where=rule.where,
                hint="write warn or fail, or expect it of a silver table",
            )
    rules = [replace(rule, action="warn" if rule.action == "warn" else "fail") for rule in suite.rules]
    return replace(suite, rules=tuple(rules))


def without_batches(suite: Suite) -> Suite:
    """The suite without what only flows can judge: each batch as a whole, and order."""
    kept = [not _is_of_batches(rule) for rule in suite.rules]
    rules = tuple(rule for rule, keep in zip(suite.rules, kept, strict=True) if keep)
    expectations = [one for one, keep in zip(suite.document["expectations"], kept, strict=True) if keep]
    return replace(suite, rules=rules, document={**suite.document, "expectations": expectations})


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part + 1 if isinstance(part, int) else part) for part in first["loc"])
        return f"{place}: {first['msg']}; mend the suite"
    return f"not JSON: {error}"


def _is_of_batches(rule: Rule) -> bool:
    """Whether flows alone can judge it, as they write batches."""
    return rule.scope == "batch" and bool(rule.within or rule.type.startswith(OF_MANY))
