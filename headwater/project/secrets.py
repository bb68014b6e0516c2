"""Secrets of an environment: references in its file, never values.

`env:NAME` reads an environment variable, `file:PATH` the first line of a file that only its owner can read
(mode 0600).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.errors import ConfError

_REFERENCES = ("env:", "file:")
# Options that hold a secret, by how their names end, in the words of each client.
_SECRET = re.compile(
    r"(passw(or)?d|secret|token|(secret|private)[._-]?key|keystore\.key|key\.pem|user\.info)$", re.I
)
_ACCOUNT = re.compile(r"fs\.azure\.account\.key\.", re.I)
# One among others in a text: in a line of JAAS, in options of a JVM, or in an address.
_WITHIN = re.compile(r"(passw(or)?d|secret|token)\w*\s*=\s*\S|://[^/\s:@]*:[^/\s@]+@", re.I)


def refuse_values(raw: Any, path: Path) -> None:
    """A secret is a reference, never itself in the file, whatever section it is in.

    Raises:
        ConfError: it is; the message names file and key, not the secret.
    """
    for key, name, value in _options(raw):
        if value is None or str(value).startswith(_REFERENCES):
            continue
        if (
            _SECRET.search(name)
            or _ACCOUNT.search(name)
            or (isinstance(value, str) and _WITHIN.search(value))
        ):
            raise ConfError(
                f"{path}: {key} stands in the file itself",
                code="SECRET_IN_CONF",
                file=path,
                hint="write env:NAME or file:PATH in the place of the whole value",
            )


def _options(raw: Any, key: str = "") -> Iterator[tuple[str, str, Any]]:
    """All values: by what key in the file, under what name, what."""
    for name, value in raw.items() if isinstance(raw, dict) else ():
        inner = f"{key}.{name}" if key else str(name)
        if isinstance(value, dict):
            yield from _options(value, inner)
        else:
            yield inner, str(name), value


def resolve(value: Any, path: Path) -> Any:
    """What a file holds, with each reference replaced by the secret.

    Raises:
        ConfError: there is no such secret, or others can read it.
    """
    if isinstance(value, dict):
        return {key: resolve(inner, path) for key, inner in value.items()}
    if not isinstance(value, str):
        return value
    if value.startswith("env:"):
        name = value.removeprefix("env:")
        if name not in os.environ:
            raise ConfError(
                f"{path}: environment variable {name} is not set",
                code="SECRET_MISSING",
                file=path,
                hint="set it or change the reference",
            )
        return os.environ[name]
    if value.startswith("file:"):
        return _read_secret(Path(value.removeprefix("file:")).expanduser(), path)
    return value


def _read_secret(secret: Path, path: Path) -> str:
    if not secret.is_file():
        raise ConfError(
            f"{path}: secret file {secret} does not exist",
            code="SECRET_MISSING",
            file=secret,
            hint="write it with mode 0600",
        )
    if secret.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfError(
            f"{path}: secret file {secret} can be read by others",
            code="SECRET_EXPOSED",
            file=secret,
            hint=f"run: chmod 600 {secret}",
        )
    lines = secret.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0]:
        raise ConfError(
            f"{path}: secret file {secret} is empty",
            code="SECRET_MISSING",
            file=secret,
            hint="its first line is the secret",
        )
    return lines[0]
