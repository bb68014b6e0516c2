"""What a generator yields: records, the shares of faults among them, and the ledger of what was produced."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from headwater.errors import ProjectError


class Record(NamedTuple):
    """One Kafka record.

    Attributes:
        value: None is a tombstone.
        partition: None leaves the choice to the client's partitioner (by key).
        timestamp_ms: Kafka's own timestamp, epoch milliseconds; None is the time of sending. A past one
            is subject to the topic's retention, and one over an hour ahead is refused by the broker.
        fault: None for an ordinary record, else `late`, `duplicate`, `future`, `malformed/<kind>` or
            `invalid/<kind>`.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The share of records, each from 0 to 1 and together at most 1, that has each fault.

    Attributes:
        late: the event time lies behind the watermark's delay.
        duplicate: a copy of a record sent shortly before, byte for byte.
        malformed: the value cannot be decoded.
        future: the event time lies days ahead.
        invalid: the value can be decoded, but the row breaks an expectation of its table.
        each: the share of *each* kind of bad record, on top of the shares above: of every malformed kind
            that the generator knows, of every invalid one, and of `future`.

    Raises:
        ProjectError: a share is outside [0, 1], or their sum is above 1.
    """

    late: float = 0.0
    duplicate: float = 0.0
    malformed: float = 0.0
    future: float = 0.0
    invalid: float = 0.0
    each: float = 0.0

    def __post_init__(self) -> None:
        for share in fields(self):
            value = getattr(self, share.name)
            if not 0 <= value <= 1:  # refuses NaN too
                raise ProjectError(
                    f"faults: {share.name} is {value}",
                    code="FAULTS_INVALID",
                    hint="give a fraction from 0 to 1",
                )
        if self.total > 1 + 1e-9:
            raise ProjectError(
                f"faults: the fractions add up to {self.total:g}",
                code="FAULTS_INVALID",
                hint="lower them to 1 in all",
            )

    @property
    def total(self) -> float:
        return self.late + self.duplicate + self.malformed + self.future + self.invalid + self.each

    def spread(self, *, malformed: int, invalid: int) -> Faults:
        """The same with `each` given to so many kinds of malformed and of invalid records, and to `future`.

        Raises:
            ProjectError: together that is more than 1.
        """
        kinds = malformed + invalid + 1
        if (total := self.total + self.each * (kinds - 1)) > 1 + 1e-9:
            raise ProjectError(
                f"faults: {kinds} kinds of bad records at {self.each:g} each, with the others, add up to "
                f"{total:g}",
                code="FAULTS_INVALID",
                hint="lower them to 1 in all",
            )
        return replace(
            self,
            each=0.0,
            malformed=min(1.0, self.malformed + self.each * malformed),
            invalid=min(1.0, self.invalid + self.each * invalid),
            future=min(1.0, self.future + self.each),
        )


@dataclass(slots=True)
class Ledger:
    """What was produced: records in all, and of them by fault label."""

    produced: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, record: Record) -> None:
        self.produced += 1
        if record.fault is not None:
            self.faults[record.fault] += 1

    @property
    def malformed(self) -> dict[str, int]:
        """The malformed records by kind."""
        return self._kinds("malformed/")

    @property
    def invalid(self) -> dict[str, int]:
        """The records that break an expectation, by kind."""
        return self._kinds("invalid/")

    @property
    def well_formed(self) -> int:
        """The records that can be decoded, invalid ones too."""
        return self.produced - sum(self.malformed.values())

    def as_dict(self) -> dict[str, Any]:
        plain = {name: self.faults[name] for name in ("late", "duplicate", "future")}
        counts = {"produced": self.produced, "well_formed": self.well_formed, **plain}
        return {**counts, "malformed": self.malformed, "invalid": self.invalid}

    def _kinds(self, prefix: str) -> dict[str, int]:
        found = {k.removeprefix(prefix): n for k, n in self.faults.items() if k.startswith(prefix)}
        return dict(sorted(found.items()))
