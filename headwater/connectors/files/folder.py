"""Files in folders of this machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Container, Iterable, Iterator
from functools import partial
from glob import iglob
from pathlib import Path

from headwater.connectors.files import adopted
from headwater.connectors.files.file import Brought, File, is_left_alone, ordered, split


class Folder:
    """The files that a pattern names.

    Args:
        root: where a relative pattern stands.
        pattern: of names, with `*`, `?`, `[…]`, and `**` for folders however deep; or the folder of a Delta
            table: then the files of its newest version.
    """

    def __init__(self, root: Path, pattern: str) -> None:
        self._root, self.pattern = root, pattern

    @property
    def delta(self) -> bool:
        """Whether the pattern is the folder of a Delta table."""
        return adopted.is_table(self._root / self.pattern)

    def missing(self) -> str | None:
        """The folder that the pattern begins with, where there is none yet."""
        folder, _ = split(self.pattern)
        return None if (self._root / folder).is_dir() else str(folder)

    def find(self, *, by_name: bool = False, taken: Collection[str] = ()) -> list[File]:
        """The files, the oldest first, or in the order of their names; those of a Delta table as they came.

        Left out are empty ones, and those whose name, or a folder that the pattern does not name itself,
        begins with `_` or `.`: they are being written.

        Args:
            by_name: whether they come in the order of their names.
            taken: the paths of files that were taken before. One of these is called as it was then, however
                the pattern spells it now; and a Delta table still has each of those in its folder.

        Raises:
            ProjectError: the Delta table's rows are not simply those of its files.
            LakeError: it was rewritten after some of its files were taken, or one of its files is not there.
        """
        if self.delta:
            table = os.path.abspath(self._root / self.pattern)
            there = adopted.files(Path(table))
            known = {os.path.abspath(self._root / path): path for path in taken}
            mine = [path for path in known if path.startswith(f"{table}{os.sep}")]
            adopted.check_as_taken(Path(self.pattern), map(_text, there), mine)
            looked = {path: self._look(known.get(_text(path), path)) for path in there}
            adopted.check_there(Path(table), [path for path, file in looked.items() if file is None])
            return [file for file in looked.values() if file is not None]
        fixed = len(split(self.pattern)[0].parts)
        names = dict.fromkeys(iglob(self.pattern, root_dir=self._root, recursive=True))  # "**/**": some twice
        seen = (self._named(name, taken) for name in names if not is_left_alone(Path(name).parts[fixed:]))
        files = map(self._look, dict.fromkeys(seen))
        return ordered([file for file in files if file is not None and file.size], by_name=by_name)

    def _named(self, path: str, taken: Container[str]) -> str:
        """A path as it was called when its file was taken; of others without what says nothing (`./`)."""
        known = (each for each in self._spellings(path) if _text(each) in taken)
        return next(known, os.path.normpath(path))

    def _spellings(self, path: str) -> Iterator[str]:
        """What patterns may call a file, the likely ones first: there may be very many files."""
        plain = os.path.normpath(path)
        yield from (plain, path, f"./{plain}")
        whole = os.path.abspath(self._root / path)
        yield whole
        below = os.path.relpath(whole, self._root)
        yield from (below, f"./{below}")

    def bring(self, files: Iterable[File], into: Path) -> Brought:
        """Each file, in turn, with where it can be read: where it lies.

        Args:
            files: some of those that were found.
            into: nothing is brought there.
        """
        for file in files:
            yield file, partial(self._path, file)

    def unchanged(self, file: File) -> bool:
        """Whether a file, now that it was read, is what was found."""
        return self._look(file.path) == file

    def _look(self, path: str) -> File | None:
        try:
            found = os.stat(self._root / path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # who reads it says why it can't be
            return File(-1, _text(path), -1)
        if not stat.S_ISREG(found.st_mode):
            return None
        return File(found.st_mtime_ns // 1000, _text(path), found.st_size)

    def _path(self, file: File) -> Path:
        """Where a file lies.

        Raises:
            OSError: its name is not UTF-8.
        """
        path = self._root / file.path
        if "\\x" in file.path and not path.exists():
            raise OSError("its name is not UTF-8; rename it")
        return path


def _text(path: str) -> str:
    """A path as a ledger holds it."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
