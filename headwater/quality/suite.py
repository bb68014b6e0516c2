"""A table's suite of expectations: `quality/<layer>.<table>.json`, a Great Expectations 1.x suite.

Great Expectations loads the same file as it is. What it leaves open stands in each expectation's
`meta.action`: `warn` (count), `drop` (leave out, count), `quarantine` (move aside, to be replayed) or
`fail` (stop the flow). Without one a critical expectation quarantines and any other warns.

https://docs.greatexpectations.io/docs/core/define_expectations/organize_expectation_suites
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from headwater.errors import ProjectError

Action = Literal["warn", "drop", "quarantine", "fail"]
ACTIONS: tuple[Action, ...] = ("warn", "drop", "quarantine", "fail")  # the weakest first


@dataclass(frozen=True)
class Rule:
    """One expectation of a suite.

    Attributes:
        id: what counts and quarantined rows name it by: the expectation's `id`, or its type and columns.
        type: Great Expectations' name of it, `expect_column_values_to_be_between`.
        kwargs: its arguments.
        action: what becomes of a row that fails it.
        where: file and place of it, for errors.
    """

    id: str
    type: str
    kwargs: Mapping[str, Any]
    action: Action
    where: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about, in the order of its arguments."""
        return _columns(self.kwargs)


@dataclass(frozen=True)
class Suite:
    """The expectations of one table, in the order of the file."""

    table: str
    file: Path
    rules: tuple[Rule, ...] = field(default=())


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Meta(BaseModel):
    """An expectation's `meta`: Great Expectations lets people keep there what they like."""

    model_config = ConfigDict(extra="allow", frozen=True)
    action: Action | None = None


class _Expectation(_Strict):
    type: str
    kwargs: dict[str, Any] = {}
    meta: _Meta | None = None
    id: str | None = None
    severity: Literal["critical", "warning", "info"] = "critical"
    description: str | None = None
    notes: str | list[str] | None = None
    rendered_content: Any = None


class _File(_Strict):
    name: str
    expectations: list[_Expectation] = []
    meta: dict[str, Any] = {}
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
        raise ProjectError(f"{file}: {_reason(e)}") from None
    rules: dict[str, Rule] = {}
    for at, expectation in enumerate(found.expectations, start=1):
        rule = _rule(expectation, f"{file}: expectation {at}")
        if rule.id in rules:
            raise ProjectError(f"{rule.where}: a second one is called {rule.id}; give it an id of its own")
        rules[rule.id] = rule
    return Suite(file.stem, file, tuple(rules.values()))


def _rule(expectation: _Expectation, where: str) -> Rule:
    kwargs = dict(expectation.kwargs)
    if kwargs.pop("mostly", 1) != 1:
        raise ProjectError(f"{where}: mostly is not supported yet: each row is judged; leave it out")
    action = expectation.meta.action if expectation.meta else None
    if action is None:
        action = "quarantine" if expectation.severity == "critical" else "warn"
    return Rule(expectation.id or _name(expectation), expectation.type, kwargs, action, where)


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
