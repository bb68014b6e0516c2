"""What of PySpark is another while a project's files are loaded; in other threads it is what it was."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from inspect import isfunction
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.udf import UserDefinedFunction

from headwater.project.pipelines import facade
from headwater.project.pipelines.reading import is_recorded
from headwater.project.pipelines.refusal import refuse
from headwater.project.pipelines.session import Session
from headwater.project.pipelines.stand_in import StandIn
from headwater.runtime import columns

_LOCK = threading.RLock()
_LOADS: ContextVar[bool] = ContextVar("_LOADS", default=False)  # this thread does
_PYSPARK = str(Path(pyspark.__file__).parent)


@contextmanager
def loading(settings: Mapping[str, Any]) -> Iterator[Session]:
    """Files of a project are loaded in here, with this for their `spark`.

    Args:
        settings: what `spark.conf.get` knows.
    """
    spark = Session(settings)
    with _LOCK, ExitStack() as stack:
        stack.enter_context(columns.without_session())
        for owner, name, other in _others(spark):
            stack.enter_context(_replaced(owner, name, other))
        stack.callback(_LOADS.reset, _LOADS.set(True))
        yield spark


def _others(spark: Session) -> Iterator[tuple[dict[str, Any] | object, str, Any]]:
    """What is replaced: whose it is, its name, and what stands there instead."""
    yield sys.modules, "pyspark.pipelines", facade
    yield pyspark, "pipelines", facade
    yield functions, "broadcast", _broadcast
    for name in ("active", "getActiveSession"):
        yield SparkSession, name, classmethod(_session(vars(SparkSession)[name].__func__, spark))
    yield SparkSession.Builder, "getOrCreate", _session(SparkSession.Builder.getOrCreate, spark)
    yield UserDefinedFunction, "__call__", _column(UserDefinedFunction.__call__)
    for name, method in list(vars(DataFrame).items()):
        if isfunction(method) and not name.startswith("_"):
            yield DataFrame, name, _method(method)


@contextmanager
def _replaced(owner: dict[str, Any] | object, name: str, other: Any) -> Iterator[None]:
    """An entry of a dict, or an attribute, is another in here."""
    held = owner if isinstance(owner, dict) else vars(owner)
    there, was = name in held, held.get(name)
    put: Callable[[Any], None] = (
        partial(owner.__setitem__, name) if isinstance(owner, dict) else partial(setattr, owner, name)
    )
    put(other)
    try:
        yield
    finally:
        if there:
            put(was)
        elif isinstance(owner, dict):
            del owner[name]
        else:
            delattr(owner, name)


def _session(ask: Callable[..., Any], spark: Session) -> Callable[..., Any]:
    """What gives a file its session; PySpark itself gets its own."""

    def session(of: Any) -> Any:
        if not _LOADS.get() or sys._getframe(1).f_code.co_filename.startswith(_PYSPARK):
            return ask(of)
        if is_recorded():
            refuse("asks for a session in a function", "use spark, which the file has")
        return spark

    return session


def _method(method: Callable[..., Any]) -> Callable[..., Any]:
    """What `DataFrame.union(one, other)` calls: of a stand-in its own."""

    def call(rows: Any, *args: Any, **named: Any) -> Any:
        if type(rows) is StandIn:
            return getattr(rows, method.__name__)(*args, **named)
        return method(rows, *args, **named)

    return call


def _column(call: Callable[..., Any]) -> Callable[..., Any]:
    """What calls a UDF; for one that is called with stand-ins no worker is looked for."""

    def column(udf: UserDefinedFunction, *args: Any, **named: Any) -> Any:
        return functions.lit(None) if is_recorded() else call(udf, *args, **named)

    return column


def _broadcast(df: Any) -> Any:
    """The same as `pyspark.sql.functions.broadcast`, said so that a stand-in understands it."""
    return df.hint("broadcast")
