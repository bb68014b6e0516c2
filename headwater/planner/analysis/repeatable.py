"""Whether a query gives the same of the same rows, whenever a batch is done and whoever does it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from headwater.errors import ProjectError, Where
from headwater.planner import nodes
from headwater.runtime import catalyst

# Expressions whose value depends on when, not on what.
_CLOCKS = {
    "CurrentTimestamp": "current_timestamp()",
    "CurrentTimestampLike": "current_timestamp()",
    "Now": "now()",
    "CurrentDate": "current_date()",
    "LocalTimestamp": "localtimestamp()",
    "CurrentTime": "current_time()",
}
# Texts that Spark reads as a time by its clock: of a literal when it parses it, of a cast when it is run.
_BY_CLOCK = r"\s*(?:now|today|tomorrow|yesterday)\b"
_WORD = re.compile(_BY_CLOCK, re.IGNORECASE)
_LITERAL = re.compile(rf"\w+\s*'{_BY_CLOCK}", re.IGNORECASE)
_TIMES = ("DateType", "TimestampType", "TimestampNTZType")
# What may differ though each of its parts is the same each time, in a plan's text.
_MAY = re.compile(
    rf"\bSample |aes_encrypt\(|user\(\)|{_BY_CLOCK}|\d-\d\d-\d\d",  # a literal time has its value there
    re.IGNORECASE,
)
_MEND = "take it out"
_OF_TIME = "use the column ingested_at"


def check(result: DataFrame, where: Where) -> None:
    """A batch that is done again gives the same rows.

    Raises:
        ProjectError: it may give others.
    """
    plan = catalyst.analysed(result)
    may = _MAY.search(catalyst.text(plan))
    if plan.deterministic() and not catalyst.has(plan, "CURRENT_LIKE") and not may:
        return
    for what, hint in _differing(plan):
        raise _refused(what, hint, where)
    for what, hint in _casts(nodes.rewritten(result, ["ReplaceExpressions"])) if may else ():
        raise _refused(what, hint, where)


def _refused(what: str, hint: str, where: Where) -> ProjectError:
    return ProjectError(
        f"{where}: {what} differs when a batch is done again", code="NOT_REPEATABLE", where=where, hint=hint
    )


def _differing(plan: Any) -> Iterator[tuple[str, str]]:
    """What may differ in a plan, and what to do instead."""
    for node in catalyst.nodes(plan):
        if catalyst.kind(node) == "Sample":
            yield "a sample", _MEND
        for expression in catalyst.expressions(node):
            kind = catalyst.kind(expression)
            if kind in _CLOCKS:
                yield _CLOCKS[kind], _OF_TIME
            elif kind == "Literal" and catalyst.kind(expression.dataType()) in _TIMES:
                said = catalyst.text_of(expression)
                if _LITERAL.match(said):
                    yield said, _OF_TIME
            elif kind == "CurrentUser":
                yield "current_user()", _MEND
            elif kind == "AesEncrypt" and _is_salted(expression):
                yield "aes_encrypt() without an initialisation vector", "give it one, or the mode 'ECB'"
            elif kind != "AggregateExpression" and not expression.deterministic():
                yield str(expression.sql()), _MEND


def _casts(plan: Any) -> Iterator[tuple[str, str]]:
    """Texts that a plan makes times of, by the clock."""
    for node in catalyst.nodes(plan):
        for expression in catalyst.expressions(node):
            if catalyst.kind(expression) != "Cast" or catalyst.kind(expression.dataType()) not in _TIMES:
                continue
            child = expression.child()
            if catalyst.kind(child) == "Literal" and _WORD.match(str(child.toString())):
                yield f"the time of '{child.toString()}'", _OF_TIME


def _is_salted(encryption: Any) -> bool:
    """Whether Spark draws an initialisation vector itself, anew for each row."""
    mode, vector = encryption.mode(), encryption.iv()
    return str(mode.toString()).upper() != "ECB" and bool(vector.foldable()) and not vector.eval(None)
