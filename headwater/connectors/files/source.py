"""Where files come from: folders of this machine, or an object store."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.connectors.files.bucket import Bucket
from headwater.connectors.files.folder import Folder
from headwater.errors import ConfError
from headwater.project.bucket import bucket_of
from headwater.project.conf import Conf

Source = Folder | Bucket


def source(pattern: str, root: Path, conf: Conf) -> Source:
    """What has the files that a pattern names.

    Args:
        pattern: `s3://…`, or a path.
        root: where a relative path stands.
        conf: says how buckets are reached.

    Raises:
        ConfError: it says nothing of this one.
    """
    name = bucket_of(pattern)
    if name is None:
        return Folder(root, pattern)
    if name not in conf.s3:
        known = ", ".join(sorted(conf.s3)) or "none"
        raise ConfError(
            f"{pattern}: the environment says nothing of this bucket",
            code="UNKNOWN_BUCKET",
            file=pattern,
            hint=f"add it under 's3' in conf/<env>.yaml; known: {known}",
        )
    return Bucket(pattern, conf.s3[name])


def whole(pattern: str) -> str:
    """A pattern that means the same wherever it is read: a relative one stands below the current folder."""
    return os.path.abspath(pattern) if bucket_of(pattern) is None else pattern
