"""What a definition file has said to `pyspark.pipelines`, as it was said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.errors import ProjectError, Where
from headwater.project.cdc.said import Cdc
from headwater.project.pipelines.refusal import here, refuse
from headwater.project.rule import Action, Rule, expected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = Callable[[], "DataFrame"]


@dataclass
class Output:
    """One table, view or flow.

    Attributes:
        kind: the function of `pyspark.pipelines` that declares it.
        name: as it was given, or the function's.
        function: what gives its rows; None: flows do.
        target: of a flow, the table that it feeds.
        properties: of the table.
        schema: the columns that it says it has: DDL, or a StructType.
        at: the line that declares it.
        rules: what is expected of its rows.
        reads: of a flow of changes, the table that has them; `cdc`: what follows from them.
        once: of a flow, whether nothing is read that comes to its source later.
    """

    kind: str
    name: str
    function: Function | None
    target: str | None = None
    comment: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    schema: Any = None
    at: Where = field(default_factory=here)
    rules: list[Rule] = field(default_factory=list)
    reads: str = ""
    cdc: Cdc | None = None
    once: bool = False

    def expect(self, description: str, constraint: str, action: Action) -> None:
        """Expect a condition to be true of its rows."""
        self.rules.append(_rule(description, constraint, action))


class Registry:
    """What one file declares."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._rules: list[tuple[Function, Rule]] = []

    def add(self, output: Output) -> None:
        """A table, a view or a flow is declared."""
        self._outputs.append(output)

    def expect(self, function: Function, description: str, constraint: str, action: Action) -> None:
        """Something is expected of the rows that a function gives, which may be declared later."""
        self._rules.append((function, _rule(description, constraint, action)))

    def outputs(self) -> Iterator[Output]:
        """All that is declared, in order, each with all that is expected of it.

        Raises:
            ProjectError: something is expected of what is declared nowhere.
        """
        for function, rule in self._rules:
            if all(output.function is not function for output in self._outputs):
                raise ProjectError(
                    f"{rule.where}: {rule.id} is expected of a function that declares nothing",
                    code="CALL_NOT_SUPPORTED",
                    where=rule.where,
                    hint="put it beside @dp.table or @dp.materialized_view",
                )
        for output in self._outputs:
            # Decorators are applied from the one next to the function on, and read from the first.
            output.rules += [rule for function, rule in reversed(self._rules) if function is output.function]
            yield output


_CURRENT: ContextVar[Registry | None] = ContextVar("_CURRENT", default=None)


@contextmanager
def collected() -> Iterator[Registry]:
    """What is declared in here, in this thread."""
    found = Registry()
    was = _CURRENT.set(found)
    try:
        yield found
    finally:
        _CURRENT.reset(was)


def registry() -> Registry:
    """Where the file that is loaded now declares.

    Raises:
        ProjectError: no file is.
    """
    found = _CURRENT.get()
    if found is None:
        refuse("declares a table while no file of definitions is loaded", "declare it as the file is loaded")
    return found


def _rule(description: str, constraint: str, action: Action) -> Rule:
    if not (isinstance(description, str) and description and isinstance(constraint, str)):
        refuse(
            f"expects {constraint!r} as {description!r}",
            'write two texts: @dp.expect("what is expected", "a condition in SQL")',
            "ARGUMENT_NOT_SUPPORTED",
        )
    return expected(description, constraint, action, here())
