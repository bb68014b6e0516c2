"""Where a project is: the folder with `conf/` and at least one layer."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from headwater.errors import ConfError, ProjectError

LAYERS = ("bronze", "silver", "gold")
_PATTERN = frozenset("*?[]{}%\\")  # of files


def find_project(start: Path | None = None) -> Path:
    """The nearest project at or above `start` (default: the current folder).

    Raises:
        ProjectError: there is none.
    """
    origin = (start or Path.cwd()).resolve()
    for folder in (origin, *origin.parents):
        if _is_project(folder):
            return folder
    raise ProjectError(
        f"{origin}: no project here or above (a folder with conf/ and one of bronze/, silver/, gold/)",
        code="NO_PROJECT",
        file=origin,
        hint="go into one, or use --project",
    )


def definition_files(layer: Path) -> list[Path]:
    """The files of a layer's definitions, in order, those in folders below it, too: not what has a name that
    begins with `_` or `.`, nor what lies below such a folder."""
    found = ((path, path.relative_to(layer).parts) for path in layer.rglob("*"))
    return sorted(
        path
        for path, parts in found
        if path.suffix in (".py", ".sql") and not any(part.startswith(("_", ".")) for part in parts)
    )


def lake(path: Path, conf: Path) -> Path:
    """The lake's absolute path.

    Args:
        path: as the environment says it.
        conf: the environment's file.

    Raises:
        ConfError: it stands for other paths, too.
    """
    found = path.resolve()
    if signs := sorted(_PATTERN.intersection(str(found))):
        raise ConfError(
            f"{conf}: key 'lake': {found} has {' and '.join(signs)}, that DuckDB takes for a pattern",
            code="CONF_INVALID",
            file=conf,
            hint="let it lie in a folder without",
        )
    return found


def engine_folder(project: Path) -> Path:
    """What the engine keeps beside the project's files, the embedded broker's data too."""
    return project / ".headwater"


def make_private(project: Path) -> None:
    """Make the engine's folder, for its owner alone: the lake in it has what the records have."""
    folder = engine_folder(project)
    with suppress(OSError):  # whoever may not write there reads only
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)


def _is_project(folder: Path) -> bool:
    return (folder / "conf").is_dir() and any((folder / layer).is_dir() for layer in LAYERS)
