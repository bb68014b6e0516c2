"""What a project's definitions are made of beside their own files: modules of its own that they import."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.project import imports
from headwater.project.load import load_project

FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/readings.py": """from typing import Any
import headwater as hw
from own_words import loud, spoken

@hw.table(source="bronze.raw", decode=hw.json("host STRING"))
def readings(raw):
    import own_late
    return raw
""",
    "silver/_not_loaded.py": "from own_words import (",
    "own_words/__init__.py": "from .loud import loud\nfrom . import spoken\n",
    "own_words/loud.py": "from own_apart.inner import MARK\nloud = MARK\n",
    "own_words/spoken.py": "import packaged_words, os.path, pyarrow.compute\n",
    "own_words/unread.py": "",
    "own_apart/inner.py": "MARK = '!'\n",  # of a package without a file
    "own_late.py": "import own_missing, sys\n",
    "tests/test_words.py": "import own_words.unread\n",
    "packages/packaged_words.py": "import own_words.unread\n",
}
OWN = {
    "own_words": "own_words/__init__.py",
    "own_words.loud": "own_words/loud.py",
    "own_words.spoken": "own_words/spoken.py",
    "own_apart.inner": "own_apart/inner.py",
    "own_late": "own_late.py",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with modules beside its layers, and a folder of packages."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    others = imports._others()
    monkeypatch.setattr(imports, "_others", lambda: (*others, f"{tmp_path / 'packages'}/"))
    for folder in (tmp_path, tmp_path / "packages"):
        monkeypatch.syspath_prepend(str(folder))
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if name.startswith(("own_", "packaged_")):
            del sys.modules[name]


def test_modules_are_found_through_modules_and_through_functions(root: Path) -> None:
    files = [path for path in root.rglob("*.py") if path.parent.name in ("bronze", "silver")]
    want = {name: root / file for name, file in OWN.items()}
    assert imports.of(files) == want
    load_project(root)  # those that are loaded are the same
    assert imports.of(files) == want


@pytest.mark.parametrize("file", [*OWN.values(), "silver/readings.py", "silver/_not_loaded.py"])
def test_a_project_is_another_once_its_code_is(root: Path, file: str) -> None:
    before = load_project(root).digest
    assert load_project(root).digest == before
    (root / file).write_text((root / file).read_text() + "# more\n")
    assert load_project(root).digest != before


@pytest.mark.parametrize("file", ["own_words/unread.py", "tests/test_words.py", "packages/packaged_words.py"])
def test_a_project_is_the_same_whatever_nothing_of_it_imports(root: Path, file: str) -> None:
    before = load_project(root).digest
    (root / file).write_text("")
    assert load_project(root).digest == before
