"""The files of a project in a test."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from headwater.project import yaml_file
from headwater.project.paths import LAYERS

FOLDERS = (*LAYERS, "quality", "queries", "generators", "conf")  # of a project that is copied


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write files, {path below `root` → text}."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def lay(root: Path, files: Mapping[str, str] | Path, env: str) -> None:
    """Make a project of files, or of a copy of another one; it gets a configuration if it has none.

    A copy has a lake of its own, wherever that of the other one lies.

    Raises:
        ConfError: the configuration is not YAML.
    """
    conf = root / "conf" / f"{env}.yaml"
    if isinstance(files, Path):
        for folder in filter(Path.is_dir, (files / name for name in FOLDERS)):
            shutil.copytree(folder, root / folder.name, dirs_exist_ok=True)
        if conf.exists():
            said = {key: value for key, value in yaml_file.read(conf).items() if key != "lake"}
            conf.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
    else:
        write(root, files)
    if not conf.exists():
        write(root, {f"conf/{env}.yaml": "kafka: embedded\n"})
