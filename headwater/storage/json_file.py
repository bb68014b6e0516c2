"""Small JSON files that the engine keeps beside its tables: each is there whole, or as it was before.

Each ends in a checksum of what stands before it; one that was written without is taken as it is.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.errors import DamageError
from headwater.storage import store

_CHECKSUM = re.compile(rb', "checksum": "([0-9a-f]{8})"}\Z')
_ALIKE = re.compile(rb': "[0-9a-f]{8}"}\Z')  # of a name that a byte was changed in


def write(file: Path, content: Mapping[str, Any], indent: int | None = None) -> None:
    """Put `content` in place of what the file holds; after a kill it is the one or the other, whole.

    Its folder must be there; one process at a time writes a file.
    """
    store.of(file).put(file, _bytes(content, indent))


def write_new(file: Path, content: Mapping[str, Any], indent: int | None = None) -> None:
    """Write a file that is not there; of several processes one does.

    Raises:
        FileExistsError: it is there.
    """
    store.of(file).put_new(file, _bytes(content, indent))


def _bytes(content: Mapping[str, Any], indent: int | None) -> bytes:
    text = json.dumps(content, indent=indent)
    return f'{text[:-1]}, "checksum": "{zlib.crc32(text.encode()):08x}"}}'.encode()


def read(file: Path, *, table: str | None = None, hint: str) -> dict[str, Any]:
    """What a file holds.

    Args:
        file: where it lies.
        table: whose it is.
        hint: what to do where it is damaged.

    Raises:
        FileNotFoundError: it is not there.
        DamageError: it is not what was written.
    """
    text = store.of(file).get(file)
    try:
        found: dict[str, Any] = json.loads(text)
        del found["checksum"]
    except KeyError:
        if not _ALIKE.search(text):
            return found
        why = "is not what was written: its checksum has another name"
    except (ValueError, TypeError):
        why = "is empty" if not text.strip(b"\0") else "is not JSON"
    else:
        said = _CHECKSUM.search(text)
        if said and zlib.crc32(text[: said.start()] + b"}") == int(said[1], 16):
            return found
        why = "is not what was written: its checksum is another"
    whose = f"{table}: " if table else ""
    raise DamageError(f"{whose}{file} {why}", code="NOTE_DAMAGED", table=table, file=file, hint=hint)
