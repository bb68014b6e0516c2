"""Where tables lie: the catalog, a Delta table that maps each name to its live generation.

    <lake>/_catalog/                    name, generation, path, created_at (UTC)
    <lake>/silver/cpu_metrics/g0001/    one life of a table: its files and its log
    <lake>/_flows/silver.cpu_metrics/   what its flow keeps beside it: lease, intent, checkpoint

One commit to the catalog may move any number of tables to other generations; readers see all of the
old ones or all of the new.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, write_deltalake

from headwater import log
from headwater.errors import ProjectError

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

_CATALOG = pa.schema(
    [
        ("name", pa.string()),
        ("generation", pa.int32()),
        ("path", pa.string()),
        ("created_at", pa.timestamp("us", tz="UTC")),
    ]
)
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Place:
    """Where one generation of a table lies."""

    name: str
    generation: int
    path: Path


class Lake:
    """The lake below one folder.

    Args:
        root: the folder; it is made by the first table.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._catalog = root / "_catalog"
        self._read_at = -2
        self._places: dict[str, Place] = {}

    def flow_folder(self, flow: str) -> Path:
        """The folder of what the flow of this table keeps beside it."""
        return self.root / "_flows" / flow

    def places(self) -> dict[str, Place]:
        """Every table's live generation, by name."""
        version = log.head(self._catalog)
        if version != self._read_at:
            rows = (
                DeltaTable(self._catalog, version=version).to_pyarrow_table().to_pylist()
                if version >= 0
                else []
            )
            self._places = {
                row["name"]: Place(row["name"], row["generation"], self.root / row["path"]) for row in rows
            }
            self._read_at = version
        return self._places

    def place(self, name: str) -> Place:
        """The table's live generation.

        Raises:
            ProjectError: nothing has been written to it yet.
        """
        places = self.places()
        if name not in places:
            raise ProjectError(
                f"{name} holds nothing yet: no flow has written it; run: headwater run {name} --once"
            )
        return places[name]

    def create(self, name: str, schema: pa.Schema, *, comment: str = "", properties: dict[str, str]) -> Place:
        """The table's live generation; where there is none, the first is made, empty, and registered.

        Args:
            name: `<layer>.<name>`.
            schema: its columns.
            comment: its description.
            properties: Delta table properties beside the engine's own.
        """
        with _LOCK, self.alone():
            first = Place(name, 1, self.root / name.replace(".", "/") / "g0001")
            place = self.places().get(name, first)
            if log.exists(place.path):
                return place if name in self.places() else self._register(place)
            DeltaTable.create(
                place.path,
                schema=Schema.from_arrow(schema),
                mode="ignore",
                name=name,
                description=comment or None,
                configuration={"delta.checkpointInterval": "1000000000", **properties},
                raise_if_key_not_exists=False,
            )
            return self._register(place)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from making tables, and from adding to those that several write."""
        self.root.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.root / "_catalog.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _register(self, place: Place) -> Place:
        """Add one line to the catalog."""
        now = datetime.now(UTC)
        row = {
            "name": place.name,
            "generation": place.generation,
            "path": str(place.path.relative_to(self.root)),
            "created_at": now,
        }
        rows = pa.Table.from_pylist([row], schema=_CATALOG)
        DeltaTable.create(self._catalog, schema=Schema.from_arrow(_CATALOG), mode="ignore")
        write_deltalake(
            self._catalog,
            rows,
            mode="append",
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=NO_HOOKS,
        )
        return place
