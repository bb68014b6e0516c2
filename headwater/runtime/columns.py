"""Columns without a session: what `pyspark.sql.functions` gives needs the JVM, and of a context no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from pyspark import SparkContext

from headwater.runtime import jvm


@contextmanager
def without_session() -> Iterator[None]:
    """Have functions of columns work while no Spark runs in this process; the first one starts the JVM."""
    if SparkContext._active_spark_context is not None:
        yield
        return
    SparkContext._active_spark_context = _Unstarted()  # type: ignore[assignment]
    try:
        yield
    finally:
        SparkContext._active_spark_context = None


class _Unstarted:
    """What functions of columns ask of a context."""

    _conf = MappingProxyType[str, str]({})

    @property
    def _gateway(self) -> Any:
        return jvm.gateway()

    @property
    def _jvm(self) -> Any:
        return jvm.gateway().jvm
