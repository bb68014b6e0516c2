"""The user's cache: what can be had again, and answers of Spark's that follow from a text alone.

`$HEADWATER_CACHE`, by default `$XDG_CACHE_HOME/headwater`, else `~/.cache/headwater`:

    jars/<lock>/              the JVM libraries, see `headwater.runtime.jars`
    answers/<asker>/<text>    what Spark has said of a text, so that to ask again starts no JVM

An answer is kept by a digest of the text and of all else that it depends on: versions of Spark and of the
tokenizer, and the code that asks. An error is not kept.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache, wraps
from importlib.metadata import version
from inspect import getfile
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
UNUSED = 30 * 86_400  # seconds after which the answers of another Spark, or to other code, go
_CODE = ("catalyst.py", "jvm.py")  # beside the asker's own module, or package
_PARSERS = ("pyspark", "sqlglot")  # whose answers they are


def folder() -> Path:
    """Where the cache is, absolute."""
    named = os.environ.get("HEADWATER_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(named) if named else Path(home) / "headwater").absolute()


def kept(ask: Callable[[str], T]) -> Callable[[str], T]:
    """A function that asks Spark what a text says: its answers are kept, of this user, on this machine.

    Args:
        ask: depends on the text alone; its return type is one that pydantic writes as JSON.
    """

    @lru_cache(maxsize=1024)
    @wraps(ask)
    def answer(text: str) -> T:
        file = _answers(getfile(ask)) / f"{_digest(ask.__qualname__.encode(), text.encode())}.json"
        adapter: TypeAdapter[T] = _adapter(ask)
        with suppress(OSError, ValidationError):
            checksum, held = (whole := file.read_bytes())[:8], whole[8:]
            if checksum == _checksum(held):
                return adapter.validate_json(held)
        found = ask(text)
        with suppress(OSError):  # a cache that can't be written keeps nothing
            _keep(file, adapter.dump_json(found))
        return found

    return answer


@cache
def _adapter(ask: Callable[[str], T]) -> TypeAdapter[T]:
    return TypeAdapter(get_type_hints(ask)["return"])


@cache
def _answers(asker: str) -> Path:
    """Where the answers to the code of a module are; those that nobody has asked for lately go."""
    own = sorted(Path(asker).parent.glob("*.py")) if Path(asker).name == "__init__.py" else [Path(asker)]
    code = [*own, *(Path(__file__).with_name(name) for name in _CODE)]
    versions = "".join(map(version, _PARSERS)).encode()
    found = folder() / "answers" / _digest(versions, *(path.read_bytes() for path in code))
    with suppress(OSError):
        found.mkdir(parents=True, exist_ok=True)
        os.utime(found)
        for other in found.parent.iterdir():
            if other.stat().st_mtime < time.time() - UNUSED:
                shutil.rmtree(other, ignore_errors=True)
    return found


def _keep(file: Path, answer: bytes) -> None:
    with NamedTemporaryFile(dir=file.parent, delete=False) as half:
        half.write(_checksum(answer) + answer)
    os.replace(half.name, file)


def _checksum(answer: bytes) -> bytes:
    return b"%08x" % zlib.crc32(answer)


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:32]
