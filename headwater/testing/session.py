"""The Spark session of tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headwater.project.conf import Conf
from headwater.runtime import sessions

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


class _Interpreted(SparkSession):
    """A session that does not compile its queries; nor do those that flows make of it."""

    def __init__(self, context: SparkContext, session: Any) -> None:
        super().__init__(context, session, INTERPRETED)


@cache
def session() -> SparkSession:
    """A session of this process's Spark, which is started on first use (about 3 s).

    It does not compile its queries, which takes longer than a few rows do, and has one task for each.
    """
    found = sessions.child(sessions.start(Conf()), parallelism=1)
    return _Interpreted(found.sparkContext, found._jsparkSession)
