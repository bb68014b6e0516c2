"""Small JSON files that the engine keeps beside its tables: each is there whole, or as it was before."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write(file: Path, content: Any, indent: int | None = None) -> None:
    """Put `content` in place of what the file holds; after a kill it is the one or the other, whole.

    Its folder must be there; one process at a time writes a file.
    """
    half = file.with_name(f"{file.name}.part")
    half.write_text(json.dumps(content, indent=indent), encoding="utf-8")
    os.replace(half, file)
