"""What the delivery tests share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).parents[1]))
from harness import Project
from running import LIMIT

from headwater.run import supervisor


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """What a run of this process leaves behind would go on beside the next test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "GRACE", LIMIT)
        yield


@pytest.fixture
def project(tmp_path: Path, broker: str, spark: SparkSession) -> Project:
    """The reference project in a folder of its own."""
    return Project(tmp_path / "project", broker=broker)
