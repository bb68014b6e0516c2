"""Which files of a pattern lie in an object store."""

from __future__ import annotations

SCHEME = "s3://"


def bucket_of(pattern: str) -> str | None:
    """The bucket whose objects a pattern names; None where it names files."""
    return pattern.removeprefix(SCHEME).partition("/")[0] if pattern.startswith(SCHEME) else None
