"""Objects of a store that speaks Amazon's S3.

An object is brought whole to this machine before it is read, the next few beside it. What was found is known
by when it was written and by its size; S3 tells seconds.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path, PurePosixPath

from pyarrow.fs import FileInfo, FileSelector, FileType, S3FileSystem

from headwater.connectors.files.file import Brought, File, is_left_alone, matches, ordered, split
from headwater.errors import FlowError, StoreUnavailable
from headwater.project.bucket import SCHEME
from headwater.project.conf import BucketOptions

AHEAD = 8  # objects that are brought, or were and wait to be read
AHEAD_BYTES = 256 << 20  # of them, but for the first
BLOCK = 8 << 20  # bytes of one request
_REFUSED = (  # by the words of Amazon's client: trying again does not help
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_OBJECT_STATE",
    "NO_SUCH_BUCKET",
    "PERMANENT_REDIRECT",
    "SIGNATURE_DOES_NOT_MATCH",
    "HTTP status 301",
    "HTTP status 400",
    "HTTP status 403",
)


class Bucket:
    """The objects that a pattern names.

    Args:
        pattern: `s3://<bucket>/<key>`; in the key `*`, `?`, `[…]`, and `**` for folders however deep.
        options: how the bucket is reached.
    """

    delta = False

    def __init__(self, pattern: str, options: BucketOptions) -> None:
        self.pattern = pattern
        self.name, _, self._key = pattern.removeprefix(SCHEME).partition("/")
        self._store = S3FileSystem(
            access_key=options.access_key,
            secret_key=options.secret_key,
            session_token=options.session_token,
            region=options.region,
            endpoint_override=options.endpoint,
        )

    def missing(self) -> str | None:
        """None: a store has no folders."""
        return None

    def find(self, *, by_name: bool = False, taken: Collection[str] = ()) -> list[File]:
        """The objects, the oldest first, or in the order of their names.

        All below the folder that the pattern begins with are listed, or only those in it where the pattern
        has no folders more. Left out are the same as in a `Folder`.

        Args:
            by_name: whether they come in the order of their names.
            taken: what was taken before; it says nothing here, as a store has no Delta tables.

        Raises:
            StoreUnavailable: the store can't be reached.
            FlowError: it refuses to list them.
        """
        folder, rest = split(self._key)
        base = PurePosixPath(self.name) / folder
        where = FileSelector(str(base), recursive=len(rest) > 1 or "**" in rest)
        try:
            with self._asking(self.pattern):
                there = self._store.get_file_info(where)
        except FileNotFoundError:
            return []  # the bucket is there
        found = []
        for info in filter(_has_content, there):
            parts = PurePosixPath(info.path).relative_to(base).parts
            if not is_left_alone(parts) and matches(parts, rest):
                known = info if info.mtime_ns else self._look(info.path)
                found += [_file(known)] if _has_content(known) else []
        return ordered(found, by_name=by_name)

    def bring(self, files: Iterable[File], into: Path) -> Brought:
        """Each object, in turn, with what waits for it and says where it can be read.

        Waiting raises `FileNotFoundError`: it is gone, or is another now; `PermissionError`: the store
        refuses it; `StoreUnavailable`.

        Args:
            files: some of those that were found.
            into: a folder to bring them to, which is removed in the end.
        """
        shutil.rmtree(into, ignore_errors=True)  # what a killed process left
        todo, numbers = deque(files), count()
        if not todo:
            return
        into.mkdir(parents=True)
        pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="bring")
        coming: deque[tuple[File, Future[Path]]] = deque()
        try:
            while todo or coming:
                while todo and len(coming) < AHEAD and _fits(todo[0], coming):
                    file = todo.popleft()
                    to = into / f"{next(numbers)}{PurePosixPath(file.path).suffix[:16]}"
                    coming.append((file, pool.submit(self._copy, file, to)))
                file, brought = coming.popleft()
                yield file, brought.result
                if brought.exception() is None:
                    brought.result().unlink()
        finally:
            pool.shutdown(cancel_futures=True)
            shutil.rmtree(into, ignore_errors=True)

    def unchanged(self, file: File) -> bool:
        """True: what is read is a copy, and was compared when it had been brought."""
        return True

    def _copy(self, file: File, to: Path) -> Path:
        path = file.path.removeprefix(SCHEME)
        try:
            with (
                self._asking(file.path),
                self._store.open_input_stream(path, compression=None) as whole,
                to.open("wb") as copy,
            ):
                while part := whole.read(BLOCK):
                    copy.write(part)
            now = self._look(path)
        except FlowError as e:
            raise PermissionError(str(e)) from None
        if not _has_content(now) or _file(now) != file:
            raise FileNotFoundError(f"{file.path} is another now")
        return to

    def _look(self, path: str) -> FileInfo:
        """An object alone. A listing may tell its time in a form that Amazon's client can't read, which then
        says 1970; this does not."""
        with self._asking(f"{SCHEME}{path}"):
            return self._store.get_file_info(path)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as e:
            said = f"{what}: {' '.join(str(e).split())}"
            if any(code in said for code in _REFUSED):
                raise FlowError(
                    f"{said}", code="STORE_REFUSES", file=what, hint=f"see s3.{self.name} in conf/<env>.yaml"
                ) from None
            raise StoreUnavailable(said, code="STORE_UNAVAILABLE", file=what) from None


def _has_content(info: FileInfo) -> bool:
    return bool(info.type == FileType.File and info.size)


def _file(info: FileInfo) -> File:
    """In whole seconds: a listing may tell more of its time than a look at the object does."""
    return File(info.mtime_ns // 10**9 * 10**6, f"{SCHEME}{info.path}", info.size)


def _fits(file: File, coming: Iterable[tuple[File, object]]) -> bool:
    sizes = [each.size for each, _ in coming]
    return not sizes or sum(sizes) + file.size <= AHEAD_BYTES
