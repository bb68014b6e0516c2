"""What a project's tables are, as analysing it tells; kept, so that to ask again starts no Spark."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import PlainSerializer, PlainValidator
from pyspark.sql.types import StructType

from headwater.planner import dependencies
from headwater.project.load import Project
from headwater.runtime import cache

Kind = Literal[
    "rows",
    "joined rows",
    "final joins",
    "changed rows",
    "aggregate",
    "final windows",
    "process",
    "view",
]


# As JSON: columns in Spark's words, a schema of Arrow in its own bytes.
Columns = Annotated[
    StructType,
    PlainValidator(lambda text: StructType.fromJson(json.loads(text))),
    PlainSerializer(lambda columns: columns.json()),
]
Schema = Annotated[
    pa.Schema,
    PlainValidator(lambda text: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))),
    PlainSerializer(lambda schema: base64.b64encode(schema.serialize()).decode()),
]


@dataclass(frozen=True)
class Outline:
    """What a table is, not how it is computed.

    Attributes:
        kind: how it is kept; of one of `rows`, or of `joined rows` of several streams (of `final joins` also
            those without a partner), each is appended and never changes, and one of `changed rows` has a row
            for a row of a table that changes in place.
        columns: what readers of the table see; all may be NULL, as in rows of before they were added.
        stored: what the Delta table holds: the columns, and partial results behind them.
        keys: the columns that identify a row; none for a table of appended rows.
        state: the columns of the table of its open windows; None where its own rows are those.
        warnings: what its definition may do, and should not.
    """

    kind: Kind
    columns: Columns
    stored: Schema
    keys: tuple[str, ...]
    state: Schema | None
    warnings: tuple[str, ...] = ()


def outlines(project: Project) -> dict[str, Outline]:
    """Every table of the project, by name; analysed (about 5 s) only where what that depends on has changed.

    Raises:
        ProjectError: as of `headwater.planner.analysis.analyse`.
    """

    @cache.kept
    def told(depends_on: str) -> dict[str, Outline]:
        from headwater.planner import analysis
        from headwater.runtime import sessions

        analysed = analysis.analyse(sessions.start(project.conf), project)
        return {name: one.outline for name, one in analysed.items()}

    return told(dependencies.everywhere(project))
