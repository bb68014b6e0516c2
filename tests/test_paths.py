"""Where a project is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from raising import raises_code

from headwater.project.paths import find_project


def test_the_nearest_project_above(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    below = tmp_path / "silver" / "deep"
    below.mkdir(parents=True)
    assert find_project(below) == tmp_path


def test_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.chdir(tmp_path)
    with raises_code("NO_PROJECT"):
        find_project()
