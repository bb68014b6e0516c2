"""`spark`, as a pipeline's files have it: it reads tables and topics, and does nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import pyspark
from pyspark.sql import DataFrame

from headwater.project.pipelines.reading import noted, under_way
from headwater.project.pipelines.refusal import refuse

_FILES = (
    'declare the files, name = hw.files("landing/x/*.json", format="json") in bronze/, and read that table; '
    "small ones that change seldom are reference tables: conf/reference/<name>.csv"
)
_TOPIC = 'records come from topics: spark.readStream.format("kafka").option("subscribe", "topic").load()'
_HINTS = {
    "catalog": "tables are read by spark.table, and declared",
    "sparkContext": "write it with DataFrames",
    "streams": "flows are run by headwater run",
    "udf": "write @F.udf, and call the function itself",
}


class Session:
    """What there is of a session for definitions.

    Args:
        settings: what `spark.conf.get` knows.
    """

    version = pyspark.__version__

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.conf = Settings(settings)

    @property
    def read(self) -> Reader:
        """What reads whole tables."""
        return Reader(stream=False)

    @property
    def readStream(self) -> Reader:  # noqa: N802 (Spark's name)
        """What reads streams."""
        return Reader(stream=True)

    def table(self, tableName: str) -> DataFrame:  # noqa: N803 (Spark's name)
        """A whole table."""
        return under_way().table(tableName, stream=False)

    def sql(self, sqlQuery: str, args: Any = None, **named: Any) -> DataFrame:  # noqa: N803 (Spark's name)
        """The rows of a SELECT."""
        if named:
            refuse(
                "gives spark.sql values by name", "write args={…} and :name, or use the DataFrame's methods"
            )
        return under_way().query(sqlQuery, args)

    def range(self, *bounds: int, **options: Any) -> DataFrame:
        """A row for each number."""
        return under_way().made(lambda spark: spark.range(*bounds, **options))

    def createDataFrame(self, data: Any, *args: Any, **options: Any) -> DataFrame:  # noqa: N802 (Spark's name)
        """Rows that stand in the file."""
        return under_way().made(lambda spark: spark.createDataFrame(data, *args, **options))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        refuse(f"uses spark.{name}", _HINTS.get(name, "here spark reads tables and topics, and no more"))


class Settings:
    """What `spark.conf` is: the settings under `spark` in the environment's file."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings

    def get(self, key: str, *default: str | None) -> str | None:
        """A setting, as text."""
        own = [self._settings[name] for name in (key, f"spark.{key}") if name in self._settings]
        if not own and not default:
            refuse(f"asks for the setting {key}", "write it under `spark` in conf/<env>.yaml")
        found = own[0] if own else default[0]
        noted(key, found)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        refuse(f"uses spark.conf.{name}", "settings stand under `spark` in conf/<env>.yaml, for all tables")


class Reader:
    """What `spark.read` and `spark.readStream` are."""

    def __init__(self, *, stream: bool, format: str = "", options: Mapping[str, str] | None = None) -> None:
        self._stream, self._format, self._options = stream, format, {**(options or {})}

    def table(self, tableName: str) -> DataFrame:  # noqa: N803 (Spark's name)
        """A table."""
        if self._options:
            refuse(f"reads a table with the option {next(iter(self._options))}", "leave it out")
        return under_way().table(tableName, stream=self._stream)

    def format(self, source: str) -> Reader:
        """The same of a source."""
        return Reader(stream=self._stream, format=source.lower(), options=self._options)

    def option(self, key: str, value: Any) -> Reader:
        """The same with an option."""
        return self.options(**{key: value})

    def options(self, **options: Any) -> Reader:
        """The same with options."""
        told = {
            key.lower(): str(value).lower() if value in (True, False) else str(value)
            for key, value in options.items()
        }
        return Reader(stream=self._stream, format=self._format, options={**self._options, **told})

    def schema(self, schema: Any) -> Reader:
        """The same with columns; they matter to files alone, which `load` refuses."""
        return self

    def load(
        self, path: Any = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> DataFrame:
        """What a source holds: records of a topic, or nothing that is read here."""
        if format is not None or options:
            return self.format(format or self._format).options(**options).load(path)
        if self._format == "kafka" and self._stream:
            return under_way().topic(self._options)
        return self._refused(f'format("{self._format}").load')

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: self._refused(name)

    def _refused(self, how: str) -> NoReturn:
        read = "readStream" if self._stream else "read"
        of_files = (
            "csv",
            "json",
            "text",
            "parquet",
            "orc",
            "avro",
            "xml",
            "binaryfile",
            "cloudfiles",
            "delta",
        )
        is_of_files = not self._format or self._format in of_files
        refuse(f"reads by spark.{read}.{how}", _FILES if is_of_files else _TOPIC)
