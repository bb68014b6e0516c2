"""What `from pyspark import pipelines as dp` gives a definition file of a project.

The names and arguments are those of Spark's own module, and of Databricks' for expectations. Decorators give
back the function that they get, so they may stand in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwater.project.cdc.said import flow_name, of_arguments
from headwater.project.pipelines.refusal import here, refuse
from headwater.project.pipelines.registry import Function, Output, registry
from headwater.project.rule import Action

_KNOWN = (
    "known: table, materialized_view, temporary_view, create_streaming_table, append_flow, "
    "create_auto_cdc_flow, expect*"
)
_LISTS = ("column", "except_column")
_SNAPSHOT = "write hw.auto_cdc_from_snapshot, which says by a column which delivery a row is of"
# Functions of Spark's and Databricks' that are not here, and arguments: what to write instead.
_OTHERS = {
    "create_sink": 'write hw.kafka_sink("silver.x", topic="topic"), or another sink, beside the table',
    "create_auto_cdc_from_snapshot_flow": _SNAPSHOT,
    "apply_changes_from_snapshot": _SNAPSHOT,
}
_HINTS = {
    "partition_cols": 'leave it out, or write table_properties={"headwater.cluster_by": "column"}',
    "cluster_by": 'write table_properties={"headwater.cluster_by": "column"}',
    "path": "leave it out: the lake says where tables lie",
    "once": "write it at a flow: @dp.append_flow(target=…, once=True)",
    "private": "leave it out, or write @dp.temporary_view",
    "temporary": "write @dp.temporary_view",
    "spark_conf": "settings of Spark stand under `spark` in conf/<env>.yaml, for all tables",
    "format": "leave it out: tables are Delta tables",
}


def table(query_function: Function | None = None, **options: Any) -> Any:
    """Declare a table that a function streams from another, or from a topic."""
    return _declares("table", query_function, options)


def materialized_view(query_function: Function | None = None, **options: Any) -> Any:
    """Declare a materialized view: what a function makes of whole tables."""
    return _declares("materialized_view", query_function, options)


def temporary_view(query_function: Function | None = None, **options: Any) -> Any:
    """Declare a named query, which is kept nowhere: those that read it compute it."""
    _check("temporary_view", options, ("name", "comment"))
    return _declares("temporary_view", query_function, options)


view = temporary_view


def create_streaming_table(
    name: str,
    *,
    expect_all: Mapping[str, str] | None = None,
    expect_all_or_drop: Mapping[str, str] | None = None,
    expect_all_or_fail: Mapping[str, str] | None = None,
    **options: Any,
) -> None:
    """Declare a table that flows feed."""
    if options.get("schema") is not None:
        refuse(
            "gives dp.create_streaming_table a schema",
            "leave it out: its columns are those of its flows; cast them there",
            "ARGUMENT_NOT_SUPPORTED",
        )
    output = _output("create_streaming_table", {**options, "name": name}, None)
    actions: dict[Action, Mapping[str, str] | None] = {
        "warn": expect_all,
        "drop": expect_all_or_drop,
        "fail": expect_all_or_fail,
    }
    for action, expectations in actions.items():
        for description, constraint in (expectations or {}).items():
            output.expect(description, constraint, action)
    registry().add(output)


def append_flow(
    *,
    target: str,
    name: str | None = None,
    once: bool = False,
    spark_conf: Mapping[str, str] | None = None,
    **options: Any,
) -> Callable[[Function], Function]:
    """Declare a flow: its rows are appended to a table that `create_streaming_table` declares."""
    if not isinstance(target, str):
        refuse(f"has target={target!r}", "write the name of a table", "ARGUMENT_NOT_SUPPORTED")
    options |= {"name": name, "spark_conf": spark_conf}
    _check("append_flow", options, ("name", "comment"))

    def declare(function: Function) -> Function:
        registry().add(replace(_output("append_flow", {**options}, function, target), once=bool(once)))
        return function

    return declare


def create_auto_cdc_flow(
    target: str,
    source: str,
    keys: Sequence[Any],
    sequence_by: Any,
    *,
    stored_as_scd_type: Any = 1,
    name: str | None = None,
    once: bool = False,
    **options: Any,
) -> None:
    """Declare a flow of changes into a table that `create_streaming_table` declares."""
    if not all(isinstance(each, str) for each in (target, source, name or "")):
        refuse(
            "has a target, source or name that is no text", "write names of tables", "ARGUMENT_NOT_SUPPORTED"
        )
    lists = [f"{of}{which}_list" for of in ("", "ignore_null_updates_", "track_history_") for which in _LISTS]
    known = ("apply_as_deletes", "apply_as_truncates", "ignore_null_updates", *lists)
    _check("create_auto_cdc_flow", options, known)
    line = here().line
    said = {option: value for option, value in options.items() if option in known}
    try:
        cdc = of_arguments(keys=keys, sequence_by=sequence_by, scd=stored_as_scd_type or 1, line=line, **said)
    except TypeError as e:
        refuse(f"gives dp.create_auto_cdc_flow what can't be: {e}", "mend it", "ARGUMENT_NOT_SUPPORTED")
    called = name or flow_name(source, target)
    registry().add(Output("auto_cdc_flow", called, None, target, reads=source, cdc=cdc, once=bool(once)))


apply_changes = create_auto_cdc_flow


def expect(description: str, constraint: str) -> Callable[[Function], Function]:
    """Count the rows for which a condition is not true."""
    return expect_all({description: constraint})


def expect_or_drop(description: str, constraint: str) -> Callable[[Function], Function]:
    """Leave out, and count, the rows for which a condition is not true."""
    return expect_all_or_drop({description: constraint})


def expect_or_fail(description: str, constraint: str) -> Callable[[Function], Function]:
    """Stop the flow at a row for which a condition is not true."""
    return expect_all_or_fail({description: constraint})


def expect_all(expectations: Mapping[str, str]) -> Callable[[Function], Function]:
    """As `expect`: {description → condition}."""
    return _expects(expectations, "warn")


def expect_all_or_drop(expectations: Mapping[str, str]) -> Callable[[Function], Function]:
    """As `expect_or_drop`: {description → condition}."""
    return _expects(expectations, "drop")


def expect_all_or_fail(expectations: Mapping[str, str]) -> Callable[[Function], Function]:
    """As `expect_or_fail`: {description → condition}."""
    return _expects(expectations, "fail")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    refuse(f"uses dp.{name}", _OTHERS.get(name, _KNOWN))


def _declares(kind: str, function: Function | None, options: dict[str, Any]) -> Any:
    def declare(function: Function) -> Function:
        if not callable(function):
            refuse(
                f"gives dp.{kind} {function!r}",
                f'write @dp.{kind}, or @dp.{kind}(name="…")',
                "ARGUMENT_NOT_SUPPORTED",
            )
        registry().add(_output(kind, {**options}, function))
        return function

    return declare if function is None else declare(function)


def _output(
    kind: str, options: dict[str, Any], function: Function | None, target: str | None = None
) -> Output:
    format = options.pop("format", None)
    if str(format or "delta").lower() != "delta":
        options["format"] = format
    _check(kind, options, ("name", "comment", "table_properties", "schema"))
    name = options.get("name") or (function.__name__ if function is not None else None)
    if not isinstance(name, str):
        refuse(f"has name={name!r}", "write a text", "ARGUMENT_NOT_SUPPORTED")
    properties = options.get("table_properties") or {}
    if not isinstance(properties, Mapping):
        refuse("has table_properties that are no dict", "write {name: value}", "ARGUMENT_NOT_SUPPORTED")
    return Output(
        kind=kind,
        name=name,
        function=function,
        target=target,
        comment=options.get("comment") or (function.__doc__ if function else None) or "",
        properties={str(key): str(value) for key, value in properties.items()},
        schema=options.get("schema"),
    )


def _check(kind: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    for name, value in options.items():
        if name not in known and value:
            refuse(
                f"gives dp.{kind} {name} = {value!r}",
                _HINTS.get(name, f"leave it out; known: {', '.join(known)}"),
                "ARGUMENT_NOT_SUPPORTED",
            )


def _expects(expectations: Mapping[str, str], action: Action) -> Callable[[Function], Function]:
    if not isinstance(expectations, Mapping):
        refuse("expects what is no dict", "write {description: condition}", "ARGUMENT_NOT_SUPPORTED")

    def declare(function: Function) -> Function:
        for description, constraint in expectations.items():
            registry().expect(function, description, constraint, action)
        return function

    return declare
