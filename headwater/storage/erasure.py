"""What an erase takes out, kept beside the lake until it is out: where the records stand, nothing of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import LakeError
from headwater.storage import store
from headwater.storage.lake import Lake
from headwater.storage.places import KEYS, PLACE

NOTE = "_erase.parquet"
Offsets: TypeAlias = Mapping[tuple[str, str, int], Collection[int]]  # by cluster, topic, partition
_SCHEMA = pa.schema(list(PLACE.items()))


@dataclass(frozen=True)
class Erasure:
    """Records that go.

    Attributes:
        tables: the bronze tables that have them.
        places: where they stand in Kafka; the columns of `places.PLACE`.
        since: what of the history is read again; see `headwater.operations.rebuild.since`.
    """

    tables: Sequence[str]
    places: pa.Table
    since: str = ""

    @classmethod
    def read(cls, lake: Lake) -> Erasure | None:
        """The erase that is under way, or was killed; None where there is none."""
        try:
            kept = pq.read_table(lake.root / NOTE, partitioning=None)
        except FileNotFoundError:
            return None
        said = {name.decode(): text.decode() for name, text in kept.schema.metadata.items()}
        return cls(said["tables"].split(), kept.replace_schema_metadata(), said["since"])

    def write(self, lake: Lake) -> None:
        """Keep it; after a kill it is there whole, or not at all."""
        file, content = lake.root / NOTE, pa.BufferOutputStream()
        named = {"tables": " ".join(self.tables), "since": self.since}
        pq.write_table(
            self.places.select(_SCHEMA.names).cast(_SCHEMA).replace_schema_metadata(named), content
        )
        store.of(file).put(file, content.getvalue().to_pybytes())

    def forget(self, lake: Lake) -> None:
        """The records are out."""
        store.of(lake.root).delete(lake.root / NOTE)


def erased(lake: Lake) -> Offsets:
    """The offsets of the records that an erase is taking out; none where there is none."""
    erasure, found = Erasure.read(lake), dict[tuple[str, str, int], set[int]]()
    if erasure is not None:
        for *partition, offset in zip(*(erasure.places[name].to_pylist() for name in KEYS), strict=True):
            found.setdefault(tuple(partition), set()).add(offset)
    return found


def is_under_way(lake: Lake) -> bool:
    """Whether an erase is under way, or was killed."""
    return store.of(lake.root).exists(lake.root / NOTE)


def refuse(lake: Lake) -> None:
    """Let nothing begin on a lake of which some tables may still have what others have no more.

    Raises:
        LakeError: an erase is under way, or was killed.
    """
    if is_under_way(lake):
        raise LakeError(
            f"{lake.root}: an erase is under way, or was killed half-way",
            code="ERASE_UNDER_WAY",
            file=lake.root,
            hint="headwater erase ends it",
        )
