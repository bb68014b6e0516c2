"""Secrets of an environment: references in its file, never values.

`env:NAME` reads an environment variable, `file:PATH` the first line of a file that only its owner can read
(mode 0600).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from headwater.errors import ConfError

SECRETS = {"postgres": ("password",), "opensearch": ("password",), "s3": ("secret_key", "session_token")}


def refuse_values(raw: Any, path: Path) -> None:
    """A secret of a connection is a reference, never itself in the file.

    Raises:
        ConfError: it is; the message names file and key, not the secret.
    """
    for store, keys in SECRETS.items():
        connections = raw.get(store) if isinstance(raw, dict) else None
        for name, options in connections.items() if isinstance(connections, dict) else ():
            for key in keys:
                secret = options.get(key) if isinstance(options, dict) else None
                if secret is not None and not str(secret).startswith(("env:", "file:")):
                    raise ConfError(
                        f"{path}: {store}.{name}.{key} stands in the file itself",
                        code="SECRET_IN_CONF",
                        file=path,
                        hint="write env:NAME or file:PATH",
                    )


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
