"""What a pipeline's Python may not do, refused by the line that does it."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from pathlib import Path
from typing import NoReturn

import pyspark

from headwater.errors import ProjectError, Where
from headwater.errors.codes import Code

DEFINING: ContextVar[str] = ContextVar("DEFINING", default="")  # the table whose function is called
# Not theirs: what Python makes itself, as the `__init__` of a dataclass (`<string>`), Spark's and ours.
_NOT_THEIRS = ("<", *(str(Path(file).parent) for file in (pyspark.__file__, __file__)))


def refuse(what: str, hint: str, code: Code = "CALL_NOT_SUPPORTED") -> NoReturn:
    """Say that the line which is at work does what can't be done here.

    Raises:
        ProjectError: always.
    """
    where, table = here(), DEFINING.get()
    raise ProjectError(
        f"{where}: {table or 'the file'} {what}", code=code, table=table or None, file=where.file, hint=hint
    )


def here() -> Where:
    """The line of the project that is at work: `file:line`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THEIRS):
        frame = frame.f_back
    file = frame.f_code.co_filename
    return Where(f"{file}:{frame.f_lineno}", file, line=frame.f_lineno)
