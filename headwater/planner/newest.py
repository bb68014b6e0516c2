"""Whether the newest changes are enough to tell what follows from new ones; `headwater.flows.suffix` reads
no others then."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from headwater.project.cdc.said import SEQUENCE, Cdc
from headwater.storage import pruning, stored


def are_enough(cdc: Cdc, changes: StructType) -> bool:
    """Whether of a row's changes those from the first new one on are, with the version that was valid before
    it where there is a history, in an order that the bounds of files tell.

    Args:
        cdc: what is said of the rows.
        changes: the columns of the changes.
    """
    if not (cdc.is_told_by_versions or cdc.is_told_by_last):
        return False
    kind = stored.schema(changes).field(SEQUENCE).type
    return pruning.has_bounds(kind) and not pa.types.is_string(kind)
