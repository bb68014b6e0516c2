"""What the delivery tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """The reference project in a folder of its own, with a broker of its own."""
    project = Project(tmp_path / "project")
    try:
        yield project
    finally:
        project.broker.stop()
