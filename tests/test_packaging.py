"""What `pip install` gives a user: the wheel and the sdist are whole, and what they install works."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from commands import ran

from headwater.project.new import TEMPLATE

ROOT = Path(__file__).resolve().parent.parent
PACKED = ("pyproject.toml", "README.md", "LICENSE")  # beside the code
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of this checkout, and the wheel that is built of that."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    shutil.copytree(ROOT / "headwater", source / "headwater", ignore=shutil.ignore_patterns("__pycache__"))
    for name in PACKED:
        shutil.copy(ROOT / name, source / name)
    ran(sys.executable, "-c", BUILD, "build_sdist", folder, cwd=source)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        packed.extractall(folder, filter="data")
    ran(sys.executable, "-c", BUILD, "build_wheel", folder, cwd=folder / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def test_the_wheel_has_every_file_of_the_code(built: tuple[Path, Path]) -> None:
    listed = ran("git", "ls-files", "--cached", "--others", "--exclude-standard", "headwater", cwd=ROOT)
    with zipfile.ZipFile(built[1]) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
    assert names == {name for name in listed.splitlines() if (ROOT / name).is_file()}


def test_what_it_installs_makes_a_project(built: tuple[Path, Path], tmp_path: Path) -> None:
    """In an environment that takes what Headwater needs from this one, and Headwater from the wheel."""
    venv.create(tmp_path / "venv")
    programs = tmp_path / "venv" / "bin"
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "install")
    ran(*pip, "--no-deps", "--no-index", built[1], cwd=tmp_path)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert ran(programs / "headwater", "--version", cwd=tmp_path).startswith("headwater ")
    ran(programs / "headwater", "init", "shop", cwd=tmp_path)
    shop = tmp_path / "shop"
    assert {path.name for path in TEMPLATE.iterdir()} - {path.name for path in shop.iterdir()} == {
        "gitignore"
    }
    where = "import headwater.run.supervisor, headwater.testing; print(headwater.__file__)"
    assert ran(programs / "python", "-c", where, cwd=shop).startswith(str(site))


@pytest.mark.torture
def test_in_an_empty_environment_a_project_passes_its_tests_and_its_demo(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    """With nothing but the wheel: packages, JVM libraries and class archives come as a user gets them."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    cache = {"HEADWATER_CACHE": str(tmp_path / "cache")}
    ran(programs / "pip", "install", "--quiet", built[1], "pytest", cwd=tmp_path)
    ran(programs / "headwater", "init", "shop", cwd=tmp_path)
    shop = tmp_path / "shop"
    assert "3 passed" in ran(programs / "python", "-m", "pytest", cwd=shop, **cache)
    said = ran(programs / "headwater", "demo", "--seconds", "5", cwd=shop, **cache)
    print(said)
    assert "headwater: archiving Java's classes" in said and "there is no such archive" not in said
    assert "gold.revenue_1m, as DuckDB reads it:" in said and "behind" not in said
    assert {path.name for path in (tmp_path / "cache" / "jars").glob("*/*")} >= {"spark", "kafka"}
