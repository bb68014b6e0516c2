"""Settings of Spark: YAML has truths and numbers, Spark their texts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

# What a key of the engine's own says, for each flow → that key.
_OWN = {"spark.sql.shuffle.partitions": "parallelism"}
# What rows mean rests on these, here and where plans are carried out without Spark.
_FIXED = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
}


def _as_spark_writes(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _not_the_engines(settings: dict[str, str]) -> dict[str, str]:
    for name in _OWN.keys() & settings.keys():
        raise ValueError(f"{name} is what the key '{_OWN[name]}' says, for each flow; write that")
    for name in sorted(_FIXED.keys() & settings.keys()):
        if settings[name].lower() != _FIXED[name].lower():
            raise ValueError(f"{name} is {_FIXED[name]}, which rows' values rest on; leave it out")
    return settings


Setting = Annotated[str, BeforeValidator(_as_spark_writes)]
Settings = Annotated[dict[str, Setting], AfterValidator(_not_the_engines)]
