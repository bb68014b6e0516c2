"""A project of one's own to begin with: what lies in `template/`, written into a folder."""

from __future__ import annotations

from pathlib import Path

from headwater.errors import ProjectError

TEMPLATE = Path(__file__).parent / "template"
_HIDDEN = {"gitignore": ".gitignore"}  # which packagers pass over


def new(folder: Path) -> list[str]:
    """Write a small project that runs; its files, below `folder`.

    Raises:
        ProjectError: the folder has something in it, or is a file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ProjectError(
            f"{folder}: it is there, and not an empty folder",
            code="FOLDER_NOT_EMPTY",
            file=folder,
            hint="name one that is empty or missing",
        )
    written = []
    for file in sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        name = file.relative_to(TEMPLATE)
        target = folder / name.with_name(_HIDDEN.get(name.name, name.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
        written.append(str(target.relative_to(folder)))
    return written
