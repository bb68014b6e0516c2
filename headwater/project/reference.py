"""Reference tables: small tables under `conf/reference/` that streams are joined with.

`conf/reference/hosts.csv` is the table `reference.hosts`; `conf/reference/hosts.ddl` beside it holds
its columns as Spark DDL, in the file's order. A folder `conf/reference/hosts/` is a Delta table.
Each state of a CSV file is kept in the lake under its SHA-256, so that a batch which has pinned one
reads the same rows when it is done again. `reference.clock` is there always: one row, the present.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampType

from headwater.common import times
from headwater.errors import FlowError, ProjectError
from headwater.runtime import jvm
from headwater.storage import log

CLOCK = "reference.clock"
# How Spark reads it: a quote in a quoted field is doubled, as https://www.rfc-editor.org/rfc/rfc4180 has it.
CSV = {"header": "true", "mode": "FAILFAST", "escape": '"', "multiLine": "true"}
_NOW = StructType([StructField("now", TimestampType())])


@dataclass(frozen=True)
class Reference:
    """A reference table: its name, `reference.<name>`, and where it lies."""

    name: str
    path: Path

    def version(self, lake: Path, now: datetime) -> str:
        """Its state at present: a Delta version, or the SHA-256 of the CSV, which is kept in the lake."""
        if self.path.is_dir():
            return str(log.head(self.path))
        content = self.path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        kept = self._kept(lake, digest)
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            half = kept.with_suffix(f".{uuid.uuid4().hex[:8]}.part")  # several flows may keep it at once
            half.write_bytes(content)
            half.replace(kept)
        return digest

    @property
    def ddl(self) -> str:
        """What the DDL file beside a CSV says; "" where there is none."""
        file = self.path.with_suffix(".ddl")
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def schema(self, spark: SparkSession) -> StructType:
        """Its columns, without reading its rows.

        Raises:
            ProjectError: the DDL file is missing or is not DDL.
        """
        if self.path.is_dir():
            return spark.read.format("delta").load(str(self.path)).schema
        return self.csv_columns()

    def csv_columns(self) -> StructType:
        """The columns of a CSV file, as the DDL file beside it and its own header say.

        Raises:
            ProjectError: the DDL file is missing or is not DDL, or the header has other names.
        """
        ddl = self.path.with_suffix(".ddl")
        if not ddl.is_file():
            raise ProjectError(
                f"{ddl}: missing",
                code="DDL_MISSING",
                file=ddl,
                hint=f"write the columns of {self.path.name} (hostname STRING, …)",
            )
        try:
            columns = jvm.ddl(" ".join(ddl.read_text(encoding="utf-8").split()))
        except ValueError as e:
            raise ProjectError(f"{ddl}: not a list of columns: {e}", code="DDL_INVALID", file=ddl) from None
        with self.path.open(encoding="utf-8") as lines:
            header = [name.strip() for name in next(lines, "").split(",")]
        if header != columns.fieldNames():
            raise ProjectError(
                f"{self.path}: its header is not {','.join(columns.fieldNames())}",
                code="REFERENCE_HEADER_DIFFERS",
                file=self.path,
                hint="mend the file",
            )
        return columns

    def read(self, spark: SparkSession, lake: Path, version: str) -> DataFrame:
        """Its rows at `version`.

        Raises:
            ProjectError, FlowError: the CSV's header or a value does not fit its columns.
        """
        if self.path.is_dir():
            return spark.read.format("delta").option("versionAsOf", version).load(str(self.path))
        schema = self.csv_columns()
        kept = self._kept(lake, version)
        rows = spark.read.schema(schema).options(**CSV).csv(str(kept))
        try:
            return spark.createDataFrame(rows.toArrow(), schema)  # in memory: joining it needs no job
        except Exception as e:
            raise FlowError(
                f"{self.path}: a row does not fit {self.path.stem}.ddl",
                code="REFERENCE_ROW_INVALID",
                file=self.path,
                hint="mend the file",
            ) from e

    def _kept(self, lake: Path, digest: str) -> Path:
        return lake / "_reference" / self.name / f"{digest}.csv"


class Clock(Reference):
    """One row, whose column `now` is the time of the batch that reads it (UTC)."""

    def __init__(self) -> None:
        super().__init__(CLOCK, Path())

    @property
    def ddl(self) -> str:
        """None: its column is the same always."""
        return ""

    def version(self, lake: Path, now: datetime) -> str:
        """The present, in ISO 8601."""
        return times.text(now)

    def csv_columns(self) -> StructType:
        """`now`, a TIMESTAMP."""
        return _NOW

    def schema(self, spark: SparkSession) -> StructType:
        """`now`, a TIMESTAMP."""
        return _NOW

    def read(self, spark: SparkSession, lake: Path, version: str) -> DataFrame:
        """The time that was pinned."""
        return spark.createDataFrame([(datetime.fromisoformat(version),)], _NOW)


def find_references(project: Path) -> list[Reference]:
    """The project's reference tables."""
    folder = project / "conf" / "reference"
    found = [p for p in folder.glob("*") if p.suffix == ".csv" or (p / "_delta_log").is_dir()]
    return [Reference(f"reference.{p.stem}", p) for p in sorted(found)]
