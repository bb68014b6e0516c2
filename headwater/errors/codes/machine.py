"""What the machine lacks or does not allow, and what the engine did not foresee."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Machine = Literal[
    "DISK_FULL",
    "FILE_SYSTEM_READ_ONLY",
    "PERMISSION_DENIED",
    "OUT_OF_MEMORY",
    "UNFORESEEN",
]

MEANINGS: dict[Machine, Meaning] = {
    "DISK_FULL": Meaning(
        "SetupError",
        "A disk, or the share of it that the user may fill, is full.",
        "Make room, then run again.",
    ),
    "FILE_SYSTEM_READ_ONLY": Meaning(
        "SetupError",
        "A folder that must be written is on a file system that can only be read.",
        "Mount it writable, or name another folder as `lake` in `conf/<env>.yaml`.",
    ),
    "PERMISSION_DENIED": Meaning(
        "SetupError",
        "The process may not read or write a file.",
        "Let its user read and write the lake and the project's `.headwater`.",
    ),
    "OUT_OF_MEMORY": Meaning(
        "SetupError",
        "Java's heap or the machine's memory is used up.",
        "Raise `memory` in `conf/<env>.yaml`, or lower `max_rows_per_batch` and `max_bytes_per_batch`.",
    ),
    "UNFORESEEN": Meaning(
        "HeadwaterError",
        "Something failed that the engine did not foresee.",
        "That is a defect; please report it with the file that the message names.",
    ),
}
