"""Settings of Spark: YAML has truths and numbers, Spark their texts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

# What a key of the engine's own says, for each flow → that key.
_OWN = {"spark.sql.shuffle.partitions": "parallelism"}


def _as_spark_writes(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _not_own(settings: dict[str, str]) -> dict[str, str]:
    for name in _OWN.keys() & settings.keys():
        raise ValueError(f"{name} is what the key '{_OWN[name]}' says, for each flow; write that")
    return settings


Setting = Annotated[str, BeforeValidator(_as_spark_writes)]
Settings = Annotated[dict[str, Setting], AfterValidator(_not_own)]
