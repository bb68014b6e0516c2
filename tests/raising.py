"""What a test expects of an error: its code, and what it is about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError, ProjectError
from headwater.errors.codes import MEANINGS, Code


@contextmanager
def raises_code(
    code: Code, *, match: str | None = None, table: str | None = None, file: str | Path | None = None
) -> Iterator[pytest.ExceptionInfo[HeadwaterError]]:
    """Expect an error with this code, of the class that the code has, in one line.

    Where it is about what a file declares, its text begins with the line that does.

    Args:
        code: the code.
        match: a pattern that its text has, where that says what the data do not.
        table: the table that it is about.
        file: the file that it names: a whole path, or the end of one.
    """
    with pytest.raises(HeadwaterError, match=match) as found:
        yield found
    error = found.value
    assert error.code == code, (error.code, str(error))
    assert {each.__name__ for each in type(error).__mro__} & {*MEANINGS[code].error.split(" or ")}
    assert "\n" not in str(error)
    if isinstance(error, ProjectError) and error.table and Path(error.file or "").suffix in (".py", ".sql"):
        declared = Path(error.file or "").is_file()
        assert not declared or re.match(rf"{re.escape(error.file or '')}:\d+: ", str(error)), str(error)
    if table is not None:
        assert error.table == table
    if file is not None:
        assert error.file is not None and error.file.endswith(str(file)), (error.file, file)
