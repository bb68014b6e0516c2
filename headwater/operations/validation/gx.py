"""Great Expectations, asked to judge a DataFrame: the one place that runs it. Importing it takes seconds.

Its result is taken as JSON, and cleaned before anybody keeps it: values of rows go (unless samples were
asked for), and of errors only their first line stays, without the values that Spark quotes.

https://docs.greatexpectations.io/docs/core/run_validations/run_a_validation_definition
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from headwater.errors import ProjectError
from headwater.project.suite import Suite

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

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

    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)  # errors are in its results
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars={"globally": False},  # type: ignore[arg-type]
        analytics_enabled=False,
    )
    return get_context(mode="ephemeral", project_config=config)


def judge(suite: Suite, found: dict[str, Any], rows: DataFrame, *, samples: int) -> dict[str, Any]:
    """What Great Expectations says of the rows, as JSON; each result's `expectation_config.id` is the rule's.

    Args:
        suite: the rules.
        found: what the suite's file has, which Great Expectations loads as it is.
        rows: the whole table; nothing of it stays persisted.
        samples: how many failing values of an expectation are kept; 0: none, nor other values of rows.

    Raises:
        ProjectError: an expectation that Great Expectations does not know, or with wrong arguments.
    """
    expectations = load(suite, found)
    for rule, expectation in zip(suite.rules, expectations.expectations, strict=True):
        expectation.id = rule.id
    asset = context().data_sources.add_spark("lake", persist=False).add_dataframe_asset(suite.table)
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": rows})
    wanted = {"result_format": "BASIC", "partial_unexpected_count": samples}
    judged = batch.validate(expectations, result_format=wanted)
    document: dict[str, Any] = json.loads(json.dumps(judged.to_json_dict(), default=_plain))
    for result in document["results"]:
        _clean(result, values=samples > 0)
    return document


def load(suite: Suite, found: dict[str, Any]) -> ExpectationSuite:
    """The suite as Great Expectations has it.

    Raises:
        ProjectError: it refuses an expectation; file and place are named.
    """
    from great_expectations import ExpectationSuite

    for rule, expectation in zip(suite.rules, found["expectations"], strict=True):
        try:
            known = len(ExpectationSuite(name=suite.table, expectations=[expectation]).expectations)
        except Exception as e:  # of pydantic, of its registry, or its own: they share no root
            raise ProjectError(
                f"{rule.where}: {rule.type}: {_reason(e)}",
                code="EXPECTATION_INVALID",
                where=rule.where,
                hint="mend the suite",
            ) from None
        if not known:
            raise ProjectError(
                f"{rule.where}: {rule.type} is refused by Great Expectations",
                code="EXPECTATION_INVALID",
                where=rule.where,
                hint="mend the suite",
            )
    return ExpectationSuite(**found)


def _plain(value: Any) -> Any:
    """What JSON has no word for: NumPy's numbers, then times and decimals."""
    return value.item() if hasattr(value, "item") else str(value)


def _clean(result: dict[str, Any], *, values: bool) -> None:
    """Leave out of one result, in place, what nobody needs to keep."""
    raised = _raised(result.get("exception_info") or {})
    said = _reason(raised) if raised is not None else None
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


def _reason(error: Exception | str) -> str:
    """The first line of a message, without the values that Spark puts in quotes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[1:] if lines[:1] and "validation error" in lines[0] else lines[:1])
    return re.sub(r"'[^']*'", "'…'", text) if re.search(r"\[[A-Z_.]+\]", text) else text
