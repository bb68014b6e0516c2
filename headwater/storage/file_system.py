"""What a lake lies on: a file system of this machine, where a lock holds and a rename is whole.

Over a network `flock` may lock for one machine alone, or for nobody, so two processes could write one table.
"""

from __future__ import annotations

import re
from pathlib import Path

from headwater.errors import ConfError

_MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = {
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "davfs",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
}
_REMOTE |= {f"fuse.{name}" for name in ("ceph", "gcsfuse", "glusterfs", "juicefs", "rclone", "s3fs", "sshfs")}


def refuse_remote(lake: Path, file: Path, mounts: str | None = None) -> None:
    """Refuse a lake on a file system of another machine.

    Args:
        lake: its folder, absolute.
        file: what says where it lies.
        mounts: what is mounted, as Linux tells it (`/proc/self/mountinfo`).

    Raises:
        ConfError: it is on one.
    """
    kinds = {}
    for line in (_MOUNTS.read_text() if mounts is None else mounts).splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), before.split()[4])  # a space: \040
        kinds[Path(point)] = after.split()[0]
    kind = next((kinds[folder] for folder in (lake, *lake.parents) if folder in kinds), "")
    if kind in _REMOTE:
        raise ConfError(
            f"{file}: the lake {lake} is on a network file system ({kind}), "
            "where locks do not keep two writers apart",
            code="LAKE_ON_NETWORK",
            file=file,
            hint="put it on a disk of this machine; headwater copy makes a backup elsewhere",
        )
