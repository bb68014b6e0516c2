"""The quarantine of a table: the records that it could not take, and what became of each since.

    quarantine.<layer>_<name>            one row per row held back: the raw record, where in Kafka, why
    quarantine.<layer>_<name>__resolved  one row per record that was replayed, dropped or discarded

Both only ever grow, so a record keeps its history. A record is open while it stands in the first and not
in the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from headwater.connectors.decode import RAW
from headwater.errors import ProjectError
from headwater.project.bronze import BRONZE
from headwater.project.load import Project
from headwater.storage import delta, stored
from headwater.storage.lake import Lake
from headwater.storage.names import quarantine_name, resolved_name
from headwater.storage.places import KEYS, PLACE, once, within, without

MALFORMED_RULE = "malformed"  # stands among the rules of a record that can't be decoded
ERROR_RULE = "error"  # stands among the rules of a record that makes the definition itself fail

HELD = StructType(
    [
        *(BRONZE[name] for name in RAW),
        StructField("reason", StringType()),
        StructField("rules", ArrayType(StringType())),
        StructField("row", StringType()),
        StructField("quarantined_at", TimestampType()),
    ]
)
"""What is held back.

Columns: bronze's, as they came; reason (for people); rules (each one it fails); row (what the definition
made of it, as JSON; NULL where it did not get that far); quarantined_at (UTC).
"""

RESOLVED = pa.schema(
    [
        *PLACE.items(),
        ("outcome", pa.string()),
        ("rows", pa.int64()),
        ("rules", pa.list_(pa.string())),
        ("why", pa.string()),
        ("quarantined_at", pa.timestamp("us", "UTC")),
        ("resolved_at", pa.timestamp("us", "UTC")),
        ("generation", pa.int32()),
        ("fingerprint", pa.string()),
    ]
)
"""What became of a record.

Columns: where it stood in Kafka; outcome (`replayed`, `dropped`: the definition or a rule leaves it out
now, `discarded`: by a person); the rows it became in the table; the rules it had failed; why it was
discarded; when it came into the quarantine and when it left (UTC); the table's generation, and the
fingerprint of the definition and suite that resolved it.
"""

_AT = pa.field("at", pa.int64())


@dataclass(frozen=True)
class Summary:
    """One table's quarantine.

    Attributes:
        table: whose quarantine it is.
        records: how many records came into it, ever.
        open: how many are in it now.
        rules: {rule → open records that fail it}.
        outcomes: {outcome → records resolved so}.
        first, last: when the oldest and the newest of the open ones came (UTC).
    """

    table: str
    records: int
    open: int
    rules: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    first: datetime | None = None
    last: datetime | None = None


class Quarantine:
    """Reads one table's quarantine as it is now.

    Args:
        lake: where the tables lie.
        table: whose quarantine it is.
    """

    def __init__(self, lake: Lake, table: str) -> None:
        self.table = table
        places = lake.places()
        held, resolved = places.get(quarantine_name(table)), places.get(resolved_name(table))
        self._held = delta.opened(held.path).to_pyarrow_dataset() if held else None
        self._resolved = delta.opened(resolved.path) if resolved else None

    def exists(self) -> bool:
        """Whether the table ever had a record quarantined."""
        return self._held is not None

    def records(self, rule: str | None = None, *, resolved: bool = False) -> Iterator[pa.Table]:
        """The quarantine's records that are open, or those that are not, a bounded number at a time.

        A record that several of its rows were quarantined for comes once. Columns: the quarantine's.

        Args:
            rule: only those that fail this rule.
            resolved: those that were replayed, dropped or discarded instead of the open ones.
        """
        if self._held is None:
            return
        at, begin = once(self.places(rule, resolved=resolved))["at"].to_numpy(), 0
        for batch in self._held.to_batches(batch_size=5_000):
            first, end = np.searchsorted(at, (begin, begin + len(batch)))
            if first < end:
                yield pa.Table.from_batches([batch.take(pa.array(at[first:end] - begin))])
            begin += len(batch)

    def places(self, rule: str | None = None, *, resolved: bool = False) -> pa.Table:
        """Where the records of rows stand that were held back: of all at once, as it tells them apart.

        Columns: those of `PLACE`, rules, quarantined_at, and `at`, the row's number in the quarantine.

        Args:
            rule: as for `records`.
            resolved: as for `records`.
        """
        wanted = [*KEYS, "rules", "quarantined_at"]
        if self._held is None:
            return stored.schema(HELD).append(_AT).empty_table().select([*wanted, _AT.name])
        found = self._held.to_table(columns=wanted)
        found = found.append_column(_AT, pa.array(range(len(found)), _AT.type))
        if rule is not None:
            found = found.filter(_has(found["rules"], rule))
        done = self.resolved(KEYS)
        return within(found, done) if resolved else without(found, done)

    def resolved(self, columns: list[str] | None = None) -> pa.Table:
        """What became of the records that are not open any more; columns: `RESOLVED`."""
        if self._resolved is None:
            return RESOLVED.empty_table().select(columns or RESOLVED.names)
        return self._resolved.to_pyarrow_table(columns=columns)

    def summary(self) -> Summary:
        """How many records are open, and why."""
        if self._held is None:
            return Summary(self.table, 0, 0)
        found = self.places()
        records = once(found)
        bounds = pc.min_max(records["quarantined_at"]).as_py()
        outcomes = Counter(self.resolved(["outcome"])["outcome"].to_pylist())
        return Summary(
            table=self.table,
            records=len(records) + sum(outcomes.values()),
            open=len(records),
            rules=dict(by_rule(found).most_common()),
            outcomes=dict(sorted(outcomes.items())),
            first=bounds["min"],
            last=bounds["max"],
        )

    def rules(self) -> list[str]:
        """The rules that open records fail."""
        return list(self.summary().rules)


def by_rule(rows: pa.Table) -> Counter[str]:
    """{rule → records that fail it}, of rows of a quarantine."""
    rules = rows["rules"].combine_chunks()
    pairs = rows.select(KEYS).take(pc.list_parent_indices(rules))
    pairs = pairs.append_column("rule", pc.list_flatten(rules))
    return Counter(pairs.group_by([*KEYS, "rule"]).aggregate([])["rule"].to_pylist())


def tables(project: Project) -> list[str]:
    """The tables of a project that may quarantine records: those that decode."""
    return [name for name, table in project.tables.items() if table.decodes]


def check(project: Project, table: str) -> None:
    """Check that a table can have a quarantine.

    Raises:
        ProjectError: there is no such table, or it decodes nothing, so it keeps no raw records.
    """
    definition = project.definition(table)
    if table not in tables(project):
        raise ProjectError(
            f"{definition.where} decodes no raw records, so it has no quarantine",
            code="NOTHING_DECODED",
            where=definition.where,
            hint=f"those that have: {', '.join(tables(project)) or 'none'}",
        )


def raw_record(row: dict[str, Any]) -> dict[str, Any]:
    """A quarantined record for people: key and value as text, bytes that are none as \\x escapes."""
    text = {name: _text(row[name]) for name in ("key", "value")}
    return {**row, **text, "headers": [(h["key"], _text(h["value"])) for h in row.get("headers") or ()]}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", errors="backslashreplace")


def _has(lists: pa.ChunkedArray, wanted: str) -> pa.Array:
    """Per list, whether it has the value."""
    found = lists.combine_chunks()
    hits = pc.list_parent_indices(found).filter(pc.equal(pc.list_flatten(found), wanted))
    return pc.is_in(pa.array(range(len(found)), pa.int64()), value_set=hits.cast(pa.int64()))
