"""The Spark session of tests, and what it has found out about definitions."""

from __future__ import annotations

import hashlib
from functools import cache

from pyspark.sql import SparkSession

from headwater.planner import analysis
from headwater.planner.analysis import Analysed
from headwater.project.conf import Conf
from headwater.project.load import Project
from headwater.runtime import sessions

_KNOWN: dict[tuple[str, str], dict[str, Analysed]] = {}


@cache
def session() -> SparkSession:
    """A session of this process's Spark, which is started on first use (about 3 s).

    It does not compile its queries, which takes longer than a few rows do, and has one task for each.
    """
    found = sessions.child(sessions.start(Conf()), parallelism=1)
    found.conf.set("spark.sql.codegen.wholeStage", "false")
    found.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return found


def analysed(spark: SparkSession, project: Project) -> dict[str, Analysed]:
    """Every table of a project, analysed: once in a process, whatever folder its files lie in.

    Raises:
        ProjectError: what can't be analysed.
    """
    key = project.digest, _conf(project)
    if key not in _KNOWN:
        _KNOWN[key] = analysis.analyse(spark, project)
    return _KNOWN[key]


def _conf(project: Project) -> str:
    """What tells the configuration apart, and the columns of the reference tables."""
    found = hashlib.sha256(project.env.encode())
    for path in sorted((project.root / "conf").rglob("*")):
        if path.is_file():
            found.update(f"{path.relative_to(project.root)}\0".encode() + path.read_bytes())
    return found.hexdigest()
