"""The Spark session of tests."""

from __future__ import annotations

from functools import cache

from pyspark.sql import SparkSession

from headwater.project.conf import Conf
from headwater.runtime import sessions

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@cache
def session() -> SparkSession:
    """A session of this process's Spark, which is started on first use (about 3 s).

    It does not compile its queries, which takes longer than a few rows do, and has one task for each.
    """
    found = sessions.child(sessions.start(Conf()), parallelism=1)
    for setting, value in INTERPRETED.items():
        found.conf.set(setting, value)
    return found
