"""`query`, `history`, `diff`, `state` and `lateness`."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Queries = Literal[
    "QUERY_FAILED",
    "QUERY_NOT_ONE_SELECT",
    "TABLE_FUNCTION_REFUSED",
    "UNKNOWN_QUERY",
    "PARAMETER_INVALID",
    "PARAMETER_MISSING",
    "UNKNOWN_PARAMETER",
    "TIME_INVALID",
    "UNKNOWN_VERSION",
    "VERSION_AMBIGUOUS",
    "TABLE_WITHOUT_VERSIONS",
    "NO_HISTORY",
    "COLUMN_NOT_READABLE",
    "NOTHING_SET_ASIDE",
    "NO_STATE",
    "EVENT_TIME_UNKNOWN",
    "ARRIVAL_UNKNOWN",
    "NO_ROWS_TO_JUDGE",
    "CHART_NOT_WRITABLE",
]

MEANINGS: dict[Queries, Meaning] = {
    "QUERY_FAILED": Meaning("QueryError", "The engine can't run the query.", "Mend what its message names."),
    "QUERY_NOT_ONE_SELECT": Meaning(
        "QueryError", "Queries only read: this is no SELECT, or not one.", "Write one SELECT."
    ),
    "TABLE_FUNCTION_REFUSED": Meaning(
        "QueryError",
        "A query calls a table function that could read files or an address.",
        "Name tables of the lake; other data is read as a reference table.",
    ),
    "UNKNOWN_QUERY": Meaning(
        "QueryError",
        "There is no saved query of that name.",
        "Mend the name; the message has those that are near.",
    ),
    "PARAMETER_INVALID": Meaning(
        "ParameterError",
        "A parameter is not written as `name=value`, is given twice, or has no name in the query.",
        "Mend it.",
    ),
    "PARAMETER_MISSING": Meaning(
        "ParameterError", "A parameter of the query is not given.", "Add `--param NAME=VALUE`."
    ),
    "UNKNOWN_PARAMETER": Meaning(
        "ParameterError",
        "A parameter is given that the query does not have.",
        "Take one of those that the message lists.",
    ),
    "TIME_INVALID": Meaning(
        "ProjectError or QueryError",
        "A text is no time and no version.",
        "Write a time like `2026-01-31T06:00:00Z`, or a version.",
    ),
    "UNKNOWN_VERSION": Meaning(
        "ProjectError or QueryError or QualityError",
        "The table has no such version, or begins after that time.",
        "Take one of those that the message names.",
    ),
    "VERSION_AMBIGUOUS": Meaning(
        "ProjectError or QualityError or QueryError",
        "A version is of one table, but several are meant.",
        "Write a time, or name one table.",
    ),
    "NO_HISTORY": Meaning(
        "QueryError",
        "`--as-of` is asked of tables none of which keeps the history of its rows.",
        "Keep one, `STORED AS SCD TYPE 2`; for a table as it stood at a time, `--at`.",
    ),
    "TABLE_WITHOUT_VERSIONS": Meaning(
        "QueryError", "A CSV file has no versions.", "Name a table of the lake."
    ),
    "COLUMN_NOT_READABLE": Meaning(
        "QueryError", "DuckDB can't read a column of that type from CSV.", "Use `--engine spark`."
    ),
    "NOTHING_SET_ASIDE": Meaning(
        "QueryError",
        "No row was rejected, or came too late, yet: there is no such table.",
        "Nothing needs to be done.",
    ),
    "NO_STATE": Meaning(
        "LakeError",
        "The table keeps nothing between batches.",
        "Take one of those that the message lists.",
    ),
    "EVENT_TIME_UNKNOWN": Meaning(
        "QueryError", "Which column tells the time of an event is not known.", "Add `--event-time COLUMN`."
    ),
    "ARRIVAL_UNKNOWN": Meaning(
        "QueryError",
        "The table has no column that says when, or in what order, rows came.",
        "Name a silver table that decodes a topic.",
    ),
    "NO_ROWS_TO_JUDGE": Meaning(
        "QueryError",
        "No row has a known event time.",
        "Run its flow, or choose another column or a longer `--last`.",
    ),
    "CHART_NOT_WRITABLE": Meaning(
        "QueryError", "A chart can't be written to that file.", "Name one that ends in `.svg` or `.html`."
    ),
}
