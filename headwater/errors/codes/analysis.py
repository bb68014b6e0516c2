"""What a definition does to rows, found by running it on empty inputs; met by `run`, `plan`,
`rebuild` and others that analyse it.
"""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Analysis = Literal[
    "DEFINITION_FAILED",
    "NOT_A_DATAFRAME",
    "COLUMN_TWICE",
    "COLUMN_RESERVED",
    "COLUMN_NOT_STORABLE",
    "COLUMN_UNSUITABLE",
    "STREAMS_DIFFER",
    "REQUIRED_COLUMN_MISSING",
    "INPUT_COLUMN_UNKNOWN",
    "KEY_UNKNOWN",
    "CLUSTERING_IMPOSSIBLE",
    "KEYS_MISSING",
    "KEYS_NOT_GROUP_BY",
    "KEYS_NOT_KEPT",
    "KEYS_SHARED",
    "INPUT_ROWS_CHANGE",
    "NOT_REPEATABLE",
    "ACROSS_ROWS",
    "JOIN_REPEATS_ROWS",
    "JOIN_NOT_APPENDED",
    "PARTNERS_NOT_TOLD",
    "JOIN_UNBOUNDED",
    "TIME_OF_JOIN",
    "FLOW_AGGREGATES",
    "FLOWS_DIFFER",
    "DECODES_AND_AGGREGATES",
    "AGGREGATE_NOT_OUTERMOST",
    "AGGREGATE_OF_AGGREGATE",
    "AGGREGATE_NOT_MAINTAINABLE",
    "NOT_INCREMENTAL",
    "COMPUTES_WITH_AGGREGATE",
    "COMPUTES_WITH_SESSION",
    "GROUPING_SETS_NOT_SUPPORTED",
    "GROUP_NOT_SELECTED",
    "WINDOW_MISSING",
    "WATERMARK_MISSING",
    "SESSION_BOUNDS_MISSING",
    "DELAYS_DIFFER",
    "LATENESS_OF_FINAL_WINDOW",
]

MEANINGS: dict[Analysis, Meaning] = {
    "DEFINITION_FAILED": Meaning(
        "ProjectError",
        "A function or a query fails on inputs without rows.",
        "Mend what Spark's message names.",
    ),
    "NOT_A_DATAFRAME": Meaning(
        "ProjectError", "A function returns something else than a DataFrame.", "Return one."
    ),
    "COLUMN_TWICE": Meaning("ProjectError", "Two columns have one name.", "Rename or drop one."),
    "COLUMN_RESERVED": Meaning(
        "ProjectError", "A column has a name that the engine gives to one of its own.", "Rename it."
    ),
    "COLUMN_NOT_STORABLE": Meaning(
        "ProjectError", "A column has no type, or one that can't be stored.", "Cast it."
    ),
    "COLUMN_UNSUITABLE": Meaning(
        "ProjectError", "A column's type can't be a key, or can't tell the time.", "Take another column."
    ),
    "STREAMS_DIFFER": Meaning(
        "ProjectError",
        "Keys of a process's streams, or columns of one name, have different types.",
        "Cast or rename one of them in the table that has it.",
    ),
    "REQUIRED_COLUMN_MISSING": Meaning(
        "ProjectError", "A column is dropped that the engine needs further on.", "Keep it."
    ),
    "INPUT_COLUMN_UNKNOWN": Meaning(
        "ProjectError",
        "An input has no column that the definition needs.",
        "Make it a column there, or name another.",
    ),
    "KEY_UNKNOWN": Meaning("ProjectError", "A key is no column of the table.", "Name one of its columns."),
    "CLUSTERING_IMPOSSIBLE": Meaning(
        "ProjectError",
        "A table is to be clustered by a column that is no key of rows which change, or has no bounds.",
        "Name keys that are whole numbers, texts, dates or times; rows that are only appended have none.",
    ),
    "KEYS_MISSING": Meaning(
        "ProjectError", "A process does not say which rows belong together.", "Give it keys."
    ),
    "KEYS_NOT_GROUP_BY": Meaning(
        "ProjectError", "An aggregate declares other keys than its `GROUP BY`.", "Leave them out."
    ),
    "KEYS_NOT_KEPT": Meaning(
        "FlowError or ProjectError",
        "A table that follows one whose rows change makes rows with other keys.",
        "Keep its keys, or make a materialized view.",
    ),
    "KEYS_SHARED": Meaning(
        "FlowError",
        "Several rows of a view have the same keys.",
        "Say in `headwater.keys` what tells them apart.",
    ),
    "INPUT_ROWS_CHANGE": Meaning(
        "ProjectError",
        "The definition can't follow an input whose rows change in place.",
        "Make a row of each row, or a `CREATE MATERIALIZED VIEW`.",
    ),
    "NOT_REPEATABLE": Meaning(
        "ProjectError",
        "An expression would differ when a batch is done again.",
        "Take it out; use `ingested_at` for the time.",
    ),
    "ACROSS_ROWS": Meaning(
        "ProjectError",
        "An operator looks across rows, but would see one batch at a time.",
        "Leave it to a query, or aggregate.",
    ),
    "JOIN_REPEATS_ROWS": Meaning(
        "ProjectError",
        "A join or a UNION would repeat rows of a table in every batch that is none of its streams.",
        "Keep the rows of the stream: `stream LEFT JOIN table`; unite streams by a flow of each.",
    ),
    "JOIN_NOT_APPENDED": Meaning(
        "ProjectError",
        "A query of several streams could take back or repeat rows that it has given.",
        "Join the streams alone, by an inner join, and read that by another table; or write `CREATE "
        "MATERIALIZED VIEW`, whose rows are corrected.",
    ),
    "PARTNERS_NOT_TOLD": Meaning(
        "ProjectError",
        "A final outer join of streams asks of partners more than equal columns and bounds of their times.",
        "Filter in the tables that are read, compute of what is joined; or leave `headwater.emit` out.",
    ),
    "JOIN_UNBOUNDED": Meaning(
        "ProjectError",
        "An outer join of streams is final, and its rows would wait for ever for a partner.",
        "Say in `ON` until when one may come, or leave `headwater.emit` out.",
    ),
    "TIME_OF_JOIN": Meaning(
        "ProjectError",
        "A table tells which rows are late of rows that a join of streams gives: these come when the later "
        "of two comes, in no order of time.",
        "Leave `headwater.emit` and `headwater.allowed_lateness` out, or read the streams themselves.",
    ),
    "FLOW_AGGREGATES": Meaning(
        "ProjectError",
        "One of several flows into a table aggregates.",
        "Do that in a table that reads this one.",
    ),
    "FLOWS_DIFFER": Meaning(
        "ProjectError", "Flows into one table have different columns.", "Give them the same."
    ),
    "DECODES_AND_AGGREGATES": Meaning(
        "ProjectError",
        "One table decodes records and aggregates them.",
        "Decode in a silver table, and aggregate that.",
    ),
    "AGGREGATE_NOT_OUTERMOST": Meaning(
        "ProjectError",
        "Something stands above or beside `GROUP BY` that can't be maintained.",
        "Aggregate at the top, and filter in a table below.",
    ),
    "AGGREGATE_OF_AGGREGATE": Meaning(
        "ProjectError",
        "An aggregate reads another in the same definition.",
        "Make the inner one a table of its own.",
    ),
    "AGGREGATE_NOT_MAINTAINABLE": Meaning(
        "ProjectError",
        "An aggregate can't be brought up to date from new rows alone.",
        "Use those that the message lists.",
    ),
    "NOT_INCREMENTAL": Meaning(
        "ProjectError",
        "A view with `headwater.refresh` = `incremental strict` has to be computed anew.",
        "Change the query or its keys, or leave the property out.",
    ),
    "COMPUTES_WITH_AGGREGATE": Meaning(
        "ProjectError",
        "A column computes with an aggregate's result.",
        "Do that in a query or a table below.",
    ),
    "COMPUTES_WITH_SESSION": Meaning(
        "ProjectError",
        "A column computes with the bounds of a session, which still grows.",
        "Do that in a view.",
    ),
    "GROUPING_SETS_NOT_SUPPORTED": Meaning(
        "ProjectError", "`ROLLUP`, `CUBE` or `GROUPING SETS`.", "Make a table for each."
    ),
    "GROUP_NOT_SELECTED": Meaning(
        "ProjectError", "What is grouped by is not among the columns.", "Add it to `SELECT`."
    ),
    "WINDOW_MISSING": Meaning(
        "ProjectError",
        "Something is declared that only windows of time have, or an outer join of streams.",
        "Leave it out, or `GROUP BY window(…)`.",
    ),
    "WATERMARK_MISSING": Meaning(
        "ProjectError",
        "Windows, or rows that wait for a partner, but nothing says how late rows may be.",
        "Declare the event time and its delay.",
    ),
    "SESSION_BOUNDS_MISSING": Meaning(
        "ProjectError", "Sessions without their start and end among the columns.", "Add both."
    ),
    "DELAYS_DIFFER": Meaning(
        "ProjectError",
        "Streams of one join have watermarks of different delays.",
        "Give all the longest: rows wait until all streams have come as far.",
    ),
    "LATENESS_OF_FINAL_WINDOW": Meaning(
        "ProjectError",
        "Lateness is allowed to windows, or to rows, that are never corrected.",
        "Leave `allowed_lateness` out and raise the delay, or write `emit = 'update'`.",
    ),
}
