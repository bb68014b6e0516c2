"""Great Expectations, asked to judge a DataFrame: the one place that runs it. Importing it takes seconds.

Its result is taken as JSON, and cleaned before anybody keeps it: values of rows go (unless samples were
asked for). What it raises, which may quote such values, too, is said in words of ours.

https://docs.greatexpectations.io/docs/core/run_validations/run_a_validation_definition
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from headwater.errors import ProjectError
from headwater.project.rule import Rule
from headwater.project.suite import Suite

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

_GALLERY = "https://greatexpectations.io/expectations"
_UNFIT = {  # by the kinds of pydantic's errors
    "value_error.extra": "it has no argument {}",
    "value_error.missing": "it lacks the argument {}",
}
_COUNTS = ("element_count", "unexpected_count", "missing_count")
# What these observe is said by the table's columns, not by its rows.
_OF_COLUMNS = (
    "expect_table_column",
    "expect_column_to_exist",
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_be_in_type_list",
)


def context() -> EphemeralDataContext:
    """A context in memory, which draws no progress bars and tells nobody that it is used."""
    from great_expectations import get_context
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults

    _hush()
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars={"globally": False},  # type: ignore[arg-type]
        analytics_enabled=False,
    )
    return get_context(mode="ephemeral", project_config=config)


def judge(suite: Suite, rows: DataFrame, *, samples: int) -> dict[str, Any]:
    """What Great Expectations says of the rows, as JSON; each result's `expectation_config.id` is the rule's.

    Args:
        suite: the rules; Great Expectations loads its document as it is.
        rows: the whole table; nothing of it stays persisted.
        samples: how many failing values of an expectation are kept; 0: none, nor other values of rows.

    Raises:
        ProjectError: an expectation that Great Expectations does not know, or with wrong arguments.
    """
    expectations = load(suite)
    for rule, expectation in zip(suite.rules, expectations.expectations, strict=True):
        expectation.id = rule.id
    source = context().data_sources.add_spark("lake", persist=False)
    source.get_execution_engine().spark = rows.sparkSession  # in which it names the rows, for queries of them
    asset = source.add_dataframe_asset(suite.table)
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": rows})
    wanted = {"result_format": "BASIC", "partial_unexpected_count": samples}
    judged = batch.validate(expectations, result_format=wanted)
    document: dict[str, Any] = json.loads(json.dumps(judged.to_json_dict(), default=_plain))
    rules = {rule.id: rule for rule in suite.rules}
    for result in document["results"]:
        _clean(result, suite.table, rules[result["expectation_config"]["id"]], values=samples > 0)
    return document


def load(suite: Suite) -> ExpectationSuite:
    """The suite as Great Expectations has it.

    Raises:
        ProjectError: it refuses an expectation; file and place are named.
    """
    from great_expectations import ExpectationSuite

    _hush()
    for rule, expectation in zip(suite.rules, suite.document["expectations"], strict=True):
        try:
            known = len(ExpectationSuite(name=suite.table, expectations=[expectation]).expectations)
        except Exception as e:  # of pydantic, of its registry, or its own: they share no root
            raise _refused(rule, _unfit(e), f"mend it: {_GALLERY}/{rule.type}") from None
        if not known:
            raise _refused(rule, "Great Expectations has none of that name", f"take another: {_GALLERY}")
    return ExpectationSuite(**suite.document)


def _hush() -> None:
    """Keep it from logging tracebacks of what it raises, or has in its results."""
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)


def _refused(rule: Rule, why: str, hint: str) -> ProjectError:
    said = f"{rule.where}: {rule.type}: {why}"
    return ProjectError(said, code="EXPECTATION_INVALID", where=rule.where, hint=hint)


def _unfit(error: Exception) -> str:
    """What of an expectation Great Expectations does not take, as pydantic tells it."""
    errors = getattr(error, "errors", None)  # of pydantic's, in either of its versions
    told: list[dict[str, Any]] = errors() if callable(errors) else []
    said: dict[str, str] = {}  # of several things that are wrong with an argument, the first
    for one in told:
        name, kind = ".".join(map(str, one["loc"])), one["type"]
        if name != "__root__":
            said.setdefault(name, _UNFIT.get(kind, "the argument {} has no value that fits").format(name))
    return ", ".join(said.values()) or "its arguments do not go together"


def _plain(value: Any) -> Any:
    """What JSON has no word for: NumPy's numbers, then times and decimals."""
    return value.item() if hasattr(value, "item") else str(value)


def _clean(result: dict[str, Any], table: str, rule: Rule, *, values: bool) -> None:
    """Leave out of one result, in place, what nobody needs to keep."""
    raised = _raised(result.get("exception_info") or {})
    said = f"{table}: {rule.where}: {rule.type} {_unable(raised)}" if raised is not None else None
    result["exception_info"] = {
        "raised_exception": raised is not None,
        "exception_message": said,
        "exception_traceback": "" if raised is not None else None,
    }
    if values:
        return
    found = result["result"]
    kept = {name: found[name] for name in found if name in _COUNTS or "percent" in name}
    if "observed_value" in found:
        kept["observed_value"] = observed(result["expectation_config"]["type"], found["observed_value"])
    result["result"] = kept


def observed(kind: str, value: Any) -> Any:
    """What an expectation of this kind observed, but no texts of rows: of a list of them how many."""
    if value is None or isinstance(value, (bool, int, float)) or kind.startswith(_OF_COLUMNS):
        return value
    if isinstance(value, dict) and "quantiles" in value:
        return value
    if isinstance(value, (list, dict)):
        return f"{len(value)} values"
    return _number_or_time(str(value))


def _number_or_time(text: str) -> str:
    return text if re.fullmatch(r"[-+0-9.eE:TZ ]+", text) else "a text"


def _raised(info: dict[str, Any]) -> str | None:
    """The message of the first exception: of the expectation, or of one of the metrics that it needs."""
    parts = [info] if "raised_exception" in info else list(info.values())
    found = [part for part in parts if part.get("raised_exception")]
    return str(found[0].get("exception_message") or "no reason given") if found else None


def _unable(raised: str) -> str:
    """Why an expectation could not be judged, of what it raised; and what to do."""
    if "No provider found" in raised:
        return "can't be judged on Spark; take another expectation"
    if missing := re.search(r'column "([^"]*)" in BatchData does not exist', raised):
        return f"is about a column {missing[1]}, which the table has not; mend its name"
    if refused := re.search(r"\[([A-Z][A-Z0-9_.]+)\]", raised):
        return f"can't be computed: Spark says {refused[1]}; let it fit the type and the values of its column"
    return "made Great Expectations fail; mend its arguments, or take another expectation"
