"""The docs name what there is: the index every page, the rooms' table every room, and paths that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GUIDES = [DOCS / "how-it-works.md", ROOT / "CONTRIBUTING.md"]


def test_the_index_has_every_page_once() -> None:
    lines = re.findall(r"^- \[.+?\]\((\w[\w-]*\.md)\): .+\?$", _text(DOCS / "README.md"), re.M)
    assert len(lines) == len(set(lines))
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= set(lines)


def test_the_rooms_are_those_of_the_contract_from_top_to_bottom() -> None:
    contracts = tomllib.loads(_text(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    section = _text(DOCS / "how-it-works.md").split("## Rooms")[1].split("\n## ")[0]
    packages = [layer for layer in layers if (ROOT / "headwater" / layer).is_dir()]
    assert re.findall(r"^\| `(\w+)` \| .+ \|$", section, re.M) == packages


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_paths_that_a_guide_names_exist(guide: Path) -> None:
    named = re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.py)?|[\w-]+\.py)(?:::(\w+))?`", _text(guide))
    assert len(named) > 30
    for path, test in named:
        found = next((base / path for base in (ROOT, ROOT / "headwater") if (base / path).exists()), None)
        assert found is not None, f"{guide.name} names {path}"
        assert not test or f"def {test}(" in _text(found), f"{guide.name} names {path}::{test}"


def test_paths_of_the_code_that_any_page_names_exist() -> None:
    named = {
        (page.name, path)
        for page in [ROOT / "README.md", *DOCS.glob("*.md")]
        for path in re.findall(r"`((?:headwater|tests|tools|bench)/[\w./-]+)`", _text(page))
    }
    assert len(named) > 5
    assert not [(page, path) for page, path in named if not (ROOT / path).exists()]


def test_what_contributing_links_exists() -> None:
    text = _text(ROOT / "CONTRIBUTING.md")
    for link, anchor in re.findall(r"\]\(([^)#:]+)(?:#([\w-]+))?\)", text):
        assert (ROOT / link).exists(), link
        headings = re.findall(r"^#+ (.+)$", _text(ROOT / link), re.M)
        assert not anchor or anchor in map(_anchor, headings), f"{link}#{anchor}"


def _anchor(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def test_pictures_of_figures_have_figures() -> None:
    pictures = {path.name: _text(path) for path in (DOCS / "images").glob("*.svg")}
    assert "freshness.svg" in pictures
    assert not [name for name, text in pictures.items() if re.search(r"\bNaN\b|Infinity|e\+\d\d", text)]
