"""A setting of Spark: YAML has truths and numbers, Spark their texts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator


def _as_spark_writes(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


Setting = Annotated[str, BeforeValidator(_as_spark_writes)]
