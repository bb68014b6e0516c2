"""The files of `bronze/`, `silver/`, `gold/` and `conf/reference/`, as they are loaded; met by every
command that loads a project.
"""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Definitions = Literal[
    "MODULE_FAILED",
    "DEFINITION_UNNAMED",
    "SQL_INVALID",
    "STATEMENT_NOT_SUPPORTED",
    "INSERT_BY_POSITION",
    "NAME_TWICE",
    "WRONG_FOLDER",
    "TABLE_NAME_INVALID",
    "UNKNOWN_PROPERTY",
    "LOOKUP_COLUMNS_INVALID",
    "LOOKUP_NOT_OF_ROWS",
    "PROPERTY_INVALID",
    "OTHER_CLUSTER",
    "UNKNOWN_SOURCE",
    "NAME_AMBIGUOUS",
    "DEFINITIONS_CYCLE",
    "SEVERAL_STREAMS",
    "STREAM_TWICE",
    "NOT_A_STREAM",
    "STREAM_MISSING",
    "NOT_BRONZE",
    "VIEW_READS_NOTHING",
    "VIEW_READS_STREAM",
    "FLOW_WITHOUT_TABLE",
    "TABLE_NOT_FED",
    "FILES_PATTERN_INVALID",
    "CALL_NOT_SUPPORTED",
    "ARGUMENT_NOT_SUPPORTED",
    "KAFKA_READ_INVALID",
    "READ_NOT_FORESEEN",
    "SCHEMA_DIFFERS",
    "SUITE_WITHOUT_TABLE",
    "DDL_MISSING",
    "DDL_INVALID",
    "REFERENCE_HEADER_DIFFERS",
    "REFERENCE_ROW_INVALID",
    "FIELD_NOT_SUPPORTED",
    "UNKNOWN_TABLE",
    "NOT_A_TABLE",
    "NOT_A_FUNCTION",
]

MEANINGS: dict[Definitions, Meaning] = {
    "MODULE_FAILED": Meaning(
        "ProjectError",
        "A Python file of the project raises when it is loaded.",
        "Mend the line that the message names.",
    ),
    "DEFINITION_UNNAMED": Meaning(
        "ProjectError",
        "A Python file calls a function that returns a definition, and gives it no name.",
        "Assign it: the variable is the definition's name.",
    ),
    "SQL_INVALID": Meaning("ProjectError", "A file is not SQL that Spark can parse.", "Mend the statement."),
    "STATEMENT_NOT_SUPPORTED": Meaning(
        "ProjectError",
        "A file has another statement than those that declare tables, flows and views, or a clause that "
        "can't be had.",
        "Write what the message names.",
    ),
    "INSERT_BY_POSITION": Meaning(
        "ProjectError", "A flow lists the columns that it inserts.", "Write `INSERT INTO … BY NAME`."
    ),
    "NAME_TWICE": Meaning(
        "ProjectError",
        "Two declarations have one name, or one has that of a table which is kept beside the other.",
        "Rename one.",
    ),
    "WRONG_FOLDER": Meaning(
        "ProjectError",
        "A table's name has another layer than its folder.",
        "Name it as its folder, or move the file.",
    ),
    "TABLE_NAME_INVALID": Meaning(
        "ProjectError",
        "A table's name has other characters than letters, digits and `_`.",
        "Name it `<layer>.<name>`.",
    ),
    "UNKNOWN_PROPERTY": Meaning(
        "ProjectError", "A table property is unknown.", "Take one of those that the message lists."
    ),
    "LOOKUP_COLUMNS_INVALID": Meaning(
        "ProjectError",
        "A lookup asks by columns that the stream has not, or gives one that it has.",
        "Name its keys as the stream's columns are called, and its own otherwise.",
    ),
    "LOOKUP_NOT_OF_ROWS": Meaning(
        "ProjectError",
        "A table names a lookup, and is no table whose rows follow from one row each of one stream.",
        "Look it up in a table that only adds the columns, and read that one.",
    ),
    "PROPERTY_INVALID": Meaning(
        "ProjectError",
        "A property or an option of a declaration has a value that it can't have.",
        "Take one of those that the message lists.",
    ),
    "UNKNOWN_SOURCE": Meaning(
        "ProjectError",
        "A definition reads a name that nothing declares.",
        "Mend the name; the message has those that are near.",
    ),
    "OTHER_CLUSTER": Meaning(
        "ProjectError",
        "A topic's text names servers that are not those of the environment.",
        "Leave them out, or write them in the environment's file.",
    ),
    "NAME_AMBIGUOUS": Meaning(
        "ProjectError",
        "A definition reads a name without a layer, which tables of several other layers have.",
        "Write the layer before it.",
    ),
    "DEFINITIONS_CYCLE": Meaning("ProjectError", "Tables read each other in a circle.", "Cut it."),
    "SEVERAL_STREAMS": Meaning(
        "ProjectError",
        "A table reads no stream, or decodes more than one; or the streams of a process have no names.",
        "Name one, and decode in a table for each; name the streams of a process.",
    ),
    "STREAM_TWICE": Meaning(
        "ProjectError",
        "A process reads one table as two streams.",
        "Read it once, and tell its rows apart in the function.",
    ),
    "NOT_A_STREAM": Meaning(
        "ProjectError",
        "A process reads a reference table or a temporary view.",
        "Read tables whose rows are appended, and join in a table above or below it.",
    ),
    "STREAM_MISSING": Meaning(
        "ProjectError", "A streaming table reads its input as a table.", "Write `FROM STREAM`."
    ),
    "NOT_BRONZE": Meaning(
        "ProjectError",
        "A table decodes the rows of a table that is not bronze.",
        "Read it undecoded, or decode a bronze table.",
    ),
    "VIEW_READS_NOTHING": Meaning(
        "ProjectError", "A materialized view reads no table.", "Name one that is written to."
    ),
    "VIEW_READS_STREAM": Meaning(
        "ProjectError",
        "A materialized view reads a stream, where it reads whole tables.",
        "Leave out `STREAM`, or write `CREATE STREAMING TABLE`.",
    ),
    "FLOW_WITHOUT_TABLE": Meaning(
        "ProjectError",
        "A flow inserts into a table that is not declared for flows.",
        "Declare it: `CREATE STREAMING TABLE`.",
    ),
    "TABLE_NOT_FED": Meaning(
        "ProjectError",
        "Neither a query nor a flow feeds a table.",
        "Write `AS SELECT …`, or a `CREATE FLOW`.",
    ),
    "FILES_PATTERN_INVALID": Meaning(
        "ProjectError",
        "Files are named by something else than a path or `s3://<bucket>/<key>`.",
        "Name them so.",
    ),
    "CALL_NOT_SUPPORTED": Meaning(
        "ProjectError",
        "A pipeline's Python does what a definition does not: it computes rows, writes, or reads elsewhere.",
        "Write what the message names.",
    ),
    "ARGUMENT_NOT_SUPPORTED": Meaning(
        "ProjectError",
        "A function of `pyspark.pipelines` is given an argument that it does not have here.",
        "Leave it out, or write what the message names.",
    ),
    "KAFKA_READ_INVALID": Meaning(
        "ProjectError",
        "A pipeline's Python reads from Kafka in a way that a bronze table does not.",
        "Subscribe to one topic, from its beginning.",
    ),
    "READ_NOT_FORESEEN": Meaning(
        "ProjectError",
        "A pipeline's function reads a table that it did not read when the project was loaded.",
        "Read the same tables whatever their columns and rows are.",
    ),
    "SCHEMA_DIFFERS": Meaning(
        "ProjectError",
        "The rows of a table have other columns than its schema says.",
        "Select and cast them, or leave the schema out.",
    ),
    "SUITE_WITHOUT_TABLE": Meaning("ProjectError", "A suite is called as no table is.", "Rename the file."),
    "DDL_MISSING": Meaning(
        "ProjectError", "A CSV reference table has no `.ddl` file with its columns.", "Write it."
    ),
    "DDL_INVALID": Meaning(
        "ProjectError", "A list of columns is not Spark DDL.", "Mend it: `hostname STRING, usage DOUBLE`."
    ),
    "REFERENCE_HEADER_DIFFERS": Meaning(
        "ProjectError",
        "The header of a CSV reference table names other columns than its `.ddl` file.",
        "Mend one of the two.",
    ),
    "REFERENCE_ROW_INVALID": Meaning(
        "FlowError", "A row of a CSV reference table does not fit its columns.", "Mend the file."
    ),
    "FIELD_NOT_SUPPORTED": Meaning(
        "ProjectError",
        "A field of `hw.json` has a type that records can't be decoded to.",
        "Take it as STRING or a STRUCT.",
    ),
    "UNKNOWN_TABLE": Meaning(
        "ProjectError or QueryError",
        "There is no table of that name.",
        "Mend the name; the message has those that are near.",
    ),
    "NOT_A_TABLE": Meaning(
        "ProjectError or QueryError",
        "An alert is named where a table is needed; what it sends is kept nowhere.",
        "Read its topic: `headwater kafka tail`.",
    ),
    "NOT_A_FUNCTION": Meaning(
        "ProjectError",
        "A test calls a definition that is no Python function.",
        "Use `headwater.drive` for a process, `spark.sql` for SQL.",
    ),
}
