"""An environment of a project, and what it lets this process take."""

from __future__ import annotations

from pathlib import Path

from headwater.common import database
from headwater.project import conf as configuration
from headwater.project.conf import Conf
from headwater.project.paths import find_project, make_private
from headwater.runtime import jvm


def enter(project: Path | None, env: str) -> tuple[Path, Conf]:
    """The folder of a project and its configuration, whose limits hold for this process from now on.

    Args:
        project: the project's folder, or one below it; None: the current one.
        env: the environment.

    Raises:
        HeadwaterError: there is no project here, or its configuration is not valid.
    """
    root = find_project(project)
    conf = configuration.load(root, env)
    make_private(root)
    jvm.size(conf.memory)
    database.limit(database.Limits(conf.lake, conf.duckdb.memory, conf.duckdb.disk, conf.cores))
    return root, conf
