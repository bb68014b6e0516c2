"""Queries by Spark: views over the same Delta tables, in databases named after the layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import HeadwaterError, QueryError
from headwater.errors.causes import first_line, known
from headwater.project.conf import Conf
from headwater.project.paths import engine_folder
from headwater.project.reference import CSV
from headwater.query import params as parameters
from headwater.query import past
from headwater.query.result import Rows
from headwater.query.sources import Source, Sources
from headwater.runtime import catalyst, jvm, sessions
from headwater.storage.names import PARTIAL

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_NO_QUERY = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
_NO_QUERY_NAMES = {"UnresolvedExecuteImmediate", "CompoundBody", "Call", "PlanWithUnresolvedIdentifier"}


def session(sources: Sources) -> SparkSession:
    """The session, with a view for every table and every reference table; of a broken one it says why."""
    spark = sessions.start(sources.conf)
    _make_views(spark, sources, [*sources.tables.values(), *sources.references.values()], {})
    return spark


def frame(conf: Conf, table: Source, version: int) -> DataFrame:
    """The Delta table as it was at `version`, without the column of partial results."""
    rows = sessions.start(conf).read.format("delta").option("versionAsOf", version).load(str(table.path))
    return rows.drop(PARTIAL)


def rows(sources: Sources, sql: str, *, at: str | None, as_of: str | None, params: Mapping[str, Any]) -> Rows:
    """The rows of one query, computed; see `headwater.query.rows`.

    Raises:
        QueryError: it is refused, or Spark can't do it.
    """
    text, wanted = parameters.for_spark(sql.strip().rstrip(";"))
    parameters.check(wanted, params)
    plan = _parse(text)
    named = sources.named(_tables(plan))
    versions, valid = past.versions(named, at), past.conditions(named, as_of)
    spark = sessions.start(sources.conf)
    _make_views(spark, sources, named, versions, alone=True, valid=valid)
    try:
        table = spark.sql(text, args=dict(params)).toArrow()
    except (PySparkException, Py4JJavaError) as e:
        raise known(e) or QueryError(first_line(e), code="QUERY_FAILED") from None
    return Rows(tuple(table.column_names), _values(table))


def _values(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches():
        yield from zip(*(column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns), strict=True)


def _make_views(
    spark: SparkSession,
    sources: Sources,
    tables: Iterable[Source],
    versions: Mapping[str, int | None],
    *,
    alone: bool = False,
    valid: Mapping[str, str] | None = None,
) -> None:
    """A view for each table; `alone`: no others are read, so none of them may be broken; of those of which
    some rows are `valid`, of these."""
    for table in tables:
        layer, name = table.name.split(".", 1)
        folder = str(engine_folder(sources.root) / "spark" / layer).replace("'", "\\'")
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {_identifier(layer)} LOCATION '{folder}'")
        full = f"{_identifier(layer)}.{_identifier(name)}"
        try:
            if not table.is_delta:
                for kind in ("TABLE", "VIEW"):  # which of both it was, since then it may have been broken
                    with suppress(AnalysisException):
                        spark.sql(f"DROP {kind} IF EXISTS {full}")
                columns = table.csv_columns()
                spark.catalog.createTable(full, path=str(table.path), source="csv", schema=columns, **CSV)
                continue
            version = versions.get(table.name)
            selected = f"* EXCEPT ({PARTIAL})" if table.has_partial(version) else "*"
        except HeadwaterError as e:
            if alone:
                raise
            said = str(e).replace("\\", "\\\\").replace("'", "\\'")
            spark.sql(f"CREATE OR REPLACE VIEW {full} AS SELECT raise_error('{said}') AS broken")
            continue
        which = "" if version is None else f" VERSION AS OF {version}"
        path = f"delta.{_identifier(str(table.path))}"
        where = f" WHERE {valid[table.name]}" if valid and table.name in valid else ""
        spark.sql(f"CREATE OR REPLACE VIEW {full} AS SELECT {selected} FROM {path}{which}{where}")


def _parse(sql: str) -> Any:
    """The query as Spark's parser sees it, which needs no session.

    Raises:
        QueryError: not SQL, or a statement that is no query.
    """
    try:
        plan = jvm.gateway().jvm.org.apache.spark.sql.execution.SparkSqlParser().parsePlan(sql)
    except (Py4JJavaError, PySparkException) as e:  # the latter once a session was started
        raise QueryError(first_line(e), code="QUERY_FAILED") from None
    gateway = jvm.gateway()
    for node in _nodes(plan):
        kind = catalyst.kind(node)
        if kind in _NO_QUERY_NAMES or any(is_instance_of(gateway, node, name) for name in _NO_QUERY):
            raise QueryError(
                f"queries only read: {kind} is refused", code="QUERY_NOT_ONE_SELECT", hint="write a SELECT"
            )
    return plan


def _tables(plan: Any) -> Iterator[str]:
    """The names of tables in a parsed query, not those of its WITH clauses."""
    nodes = list(_nodes(plan))
    ctes = {
        str(r._1()).lower()
        for n in nodes
        if catalyst.kind(n) == "UnresolvedWith"
        for r in jvm.items(n.cteRelations())
    }
    for node in nodes:
        if catalyst.kind(node) == "UnresolvedRelation":
            name = ".".join(jvm.items(node.multipartIdentifier())).removeprefix("spark_catalog.")
            if name.lower() not in ctes:
                yield name


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    if catalyst.kind(plan) == "RelationTimeTravel":
        yield from _nodes(plan.relation())
    if catalyst.kind(plan) == "UnresolvedWith":
        for relation in jvm.items(plan.cteRelations()):
            yield from _nodes(relation._2())
    for child in jvm.items(plan.children()):
        yield from _nodes(child)
    for query in jvm.items(plan.subqueries()):
        yield from _nodes(query)


def _identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
