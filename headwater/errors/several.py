"""Several errors at once: whoever mends a project wants to know all of them, not the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headwater.errors import ConfError, HeadwaterError, ProjectError


class SeveralErrors(ProjectError, ConfError):  # noqa: N818 (they are several)
    """At least two; as text each is a line. Its data are those of the first.

    Args:
        errors: all of them.
    """

    def __init__(self, errors: Sequence[HeadwaterError]) -> None:
        first = errors[0]
        super().__init__("\n".join(map(str, errors)), code=first.code, table=first.table, file=first.file)
        self.errors = tuple(errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errors,)


class Collected:
    """What is wrong with a project, in the order in which it was found."""

    def __init__(self) -> None:
        self._found: list[HeadwaterError] = []

    @contextmanager
    def each(self, failed: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Keep the error that ends what is done in here, call `failed`, and go on behind it."""
        try:
            yield
        except (ProjectError, ConfError) as e:
            self.add(*(e.errors if isinstance(e, SeveralErrors) else [e]))
            failed()

    def add(self, *errors: HeadwaterError) -> None:
        """Keep these."""
        self._found += errors

    def check(self) -> None:
        """Raise what was found.

        Raises:
            ProjectError, ConfError: that one; of several, `SeveralErrors`.
        """
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise SeveralErrors(self._found)
