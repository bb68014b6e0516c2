"""Secrets of an environment: references in its file, never values.

`env:NAME` reads an environment variable, `file:PATH` the first line of a file that only its owner can read
(mode 0600). An option that takes an address and no secret may have one of a file: `spark.jars: file:/x.jar`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.errors import ConfError

# Options that hold a secret, by how their names end, in the words of each client.
_SECRET = re.compile(
    r"(passw(or)?d|secret|token|(secret|private)[._-]?key|keystore\.key|key\.pem|user\.info)$", re.I
)
_ACCOUNT = re.compile(r"fs\.azure\.account\.key\.", re.I)
# One among others in a text: in a line of JAAS, in options of a JVM, or in an address.
_WITHIN = re.compile(r"(passw(or)?d|secret|token)\w*\s*=\s*\S|://[^/\s:@]*:[^/\s@]+@", re.I)
# Settings of Spark that hold a secret, here or as options of a JVM: what it keeps out of its own logs.
_OF_SPARK = re.compile(
    r"secret|password|token|access[.]?key|account[.]key|credential|jaas|sasl|ssl.*key|javaOptions$", re.I
)
_ADDRESS = re.compile(r"endpoint\.url$")  # of Kafka's clients, which read tokens and keys there


def refuse_values(raw: Any, path: Path) -> None:
    """A secret is a reference, never itself in the file, whatever section it is in.

    Raises:
        ConfError: it is; the message names file and key, not the secret.
    """
    for key, name, value in _options(raw):
        if value is None or _is_reference(key, value):
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


def _is_reference(key: str, value: Any) -> bool:
    """Whether the value of a key is one."""
    if str(value).startswith("file:"):
        takes = _OF_SPARK.search(key) if key.startswith("spark.") else not _ADDRESS.search(key)
        return bool(takes)
    return str(value).startswith("env:")


def resolve(raw: Any, path: Path, key: str = "") -> Any:
    """What a file holds, with each reference replaced by the secret.

    Args:
        raw: what it holds, each key in its section.
        path: the file.
        key: where in it that is; "": it is all.

    Raises:
        ConfError: there is no such secret, or others can read it.
    """
    if isinstance(raw, dict):
        return {name: resolve(value, path, f"{key}.{name}".strip(".")) for name, value in raw.items()}
    if not isinstance(raw, str) or not _is_reference(key, raw):
        return raw
    kind, _, named = raw.partition(":")
    if kind == "file":
        return _read_secret(Path(named).expanduser(), path)
    if not os.environ.get(named):
        how = "is empty" if named in os.environ else "is not set"
        raise ConfError(
            f"{path}: environment variable {named} {how}",
            code="SECRET_MISSING",
            file=path,
            hint="set it or change the reference",
        )
    return os.environ[named]


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
