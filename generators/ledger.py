"""A bank's ledger: transactions, and the accounts and customers that they are of; and the right answers.

Topic `transactions`: {transaction_id, account_id, customer_id, type DEBIT or CREDIT, amount in euros and
cents, currency, transfer_id of its two legs or null, merchant or null, transaction_time in epoch ms UTC},
keyed by account_id. Topics `customers` and `accounts`, compacted, keyed by their id: the row as it is from
changed_at (epoch ms UTC) on; a record without a value deletes it, as of Kafka's timestamp. Changes come in
any order, some twice, and some after the first transactions of their account; some accounts are never told.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple
from zlib import crc32

from headwater.connectors.produce import Faults, Record, Topic
from headwater.connectors.produce.events import MALFORMED, Draw, Events, Fields, reached

TRANSACTIONS, CUSTOMERS, ACCOUNTS = "transactions", "customers", "accounts"
OPEN, CHANGES = 300, 0.01  # accounts in the end, and the share of records that change one or its customer
LIMIT_MS, DELAY_MS, HOUR_MS, DAY_MS = 600_000, 30_000, 3_600_000, 86_400_000
MERCHANTS = tuple(f"merchant-{n:02d}" for n in range(40))
PARTITIONS = 4

topics = [
    Topic(TRANSACTIONS, partitions=5),
    Topic(CUSTOMERS, partitions=PARTITIONS, compacted=True),
    Topic(ACCOUNTS, partitions=PARTITIONS, compacted=True),
]
shown = "gold.account_balances ORDER BY balance DESC, account_id"


class _Bank:
    """What has been told so far, and what is still to be."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._numbers, self._order = count(), count()
        self._accounts: list[str] = []
        self._changed: dict[str, int] = {}
        self._legs: list[tuple[int, int, Fields]] = []  # the second ones of transfers, by when they come
        self._held: list[tuple[int, int, Record]] = []  # changes, by when they are sent

    def change(self, now: int) -> Record | None:
        """What is sent of accounts and customers at this instant, if anything is."""
        if len(self._accounts) < 20 or self._draw() < CHANGES:
            self._make(now)
        return heappop(self._held)[2] if self._held and self._held[0][0] <= now else None

    def transaction(self, draw: Draw, now: int) -> Fields:
        """The next one: the second leg of a transfer, where it is time for one."""
        if self._legs and self._legs[0][0] <= now:
            return heappop(self._legs)[2]
        account = self._some(draw)
        kind = "DEBIT" if draw() < 0.55 else "CREDIT"
        found = self._of(draw, account, kind, now - int(draw() * 2_000))
        if draw() < 0.1:
            self._transfer(draw, found)
        elif kind == "DEBIT":
            found["merchant"] = MERCHANTS[int(draw() * len(MERCHANTS))]
        return found

    def _of(self, draw: Draw, account: str, kind: str, at: int) -> Fields:
        return {
            "transaction_id": f"t{next(self._numbers):08d}",
            "account_id": account,
            "customer_id": _owner(account),
            "type": kind,
            "amount": (int(draw() ** 3 * 200_000) + 1) / 100,
            "currency": "EUR",
            "transfer_id": None,
            "merchant": None,
            "transaction_time": at,
        }

    def _transfer(self, draw: Draw, first: Fields) -> None:
        """Make a transaction the first leg of a transfer; the other one comes later, too late, or never."""
        first["transfer_id"] = f"x{first['transaction_id'][1:]}"
        chance, apart = draw(), draw()
        lag = int(apart * 60_000 if chance < 0.75 else LIMIT_MS - 30_000 + apart * 60_000)
        if chance < 0.85:
            at = first["transaction_time"] + lag
            kind = "CREDIT" if first["type"] == "DEBIT" else "DEBIT"
            other = self._of(draw, self._some(draw), kind, at)
            leg = {**other, **{name: first[name] for name in ("amount", "transfer_id")}}
            heappush(self._legs, (at, next(self._order), leg))

    def _some(self, draw: Draw) -> str:
        at = int(draw() * (len(self._accounts) + 0.1))
        return self._accounts[at] if at < len(self._accounts) else "a-unknown"

    def _make(self, now: int) -> None:
        """A change: a new account and perhaps its customer, or one that is there becomes another, or goes."""
        if len(self._accounts) < 20 or (len(self._accounts) < OPEN and self._draw() < 0.4):
            account = f"a{len(self._accounts):04d}"
            self._accounts.append(account)
            if _owner(account) not in self._changed:
                self._say(CUSTOMERS, _owner(account), now, gone=False)
            self._say(ACCOUNTS, account, now, gone=False)
            return
        account = self._accounts[int(self._draw() * len(self._accounts))]
        gone = self._draw() < 0.1
        if self._draw() < 0.5:
            self._say(ACCOUNTS, account, now, gone=gone)
        else:
            self._say(CUSTOMERS, _owner(account), now, gone=gone)

    def _say(self, topic: str, key: str, now: int, *, gone: bool) -> None:
        at = self._changed[key] = max(now, self._changed.get(key, 0) + 1)
        fields = self._account(key) if topic == ACCOUNTS else self._customer(key)
        value = None if gone else json.dumps({**fields, "changed_at": at}, separators=(",", ":")).encode()
        record = Record(topic, key.encode(), value, crc32(key.encode()) % PARTITIONS, at, None)
        late = self._draw() < 0.2
        heappush(self._held, (now + int(late * self._draw() * 60_000), next(self._order), record))
        if self._draw() < 0.05:
            again = record._replace(fault="duplicate")
            heappush(self._held, (now + int(self._draw() * 60_000), next(self._order), again))

    def _account(self, account: str) -> Fields:
        kinds = ("current", "savings", "business")
        return {
            "account_id": account,
            "customer_id": _owner(account),
            "kind": kinds[int(account[1:]) % 3],
            "status": f"{'blocked' if self._draw() < 0.1 else 'open'} by order {next(self._order)}",
        }

    def _customer(self, customer: str) -> Fields:
        segments, cities = ("private", "premium", "trade"), ("Bern", "Oslo", "Rome", "Wien", "Zug")
        return {
            "customer_id": customer,
            "name": f"customer {customer[1:]}, contract {next(self._order)}",
            "segment": segments[int(self._draw() * 3)],
            "city": cities[int(self._draw() * 5)],
        }


def _owner(account: str) -> str:
    return f"c{int(account[1:]) // 2:04d}" if account != "a-unknown" else "c-unknown"


INVALID = {
    "no_account": lambda event: {**event, "account_id": None},
    "negative": lambda event: {**event, "amount": -event["amount"]},
    "no_type": lambda event: {**event, "type": "REFUND"},
}


def records(*, seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]:
    """Records without end, of all three topics; faults are those of transactions."""
    bank, instants = _Bank(random.Random(seed + 1).random), list[int]()

    def instant() -> Iterator[int]:
        while True:
            yield instants.pop()

    events = Events(
        topic=TRANSACTIONS,
        partitions=5,
        key="account_id",
        time="transaction_time",
        draw=bank.transaction,
        malformed=MALFORMED,
        invalid=INVALID,
        late=(60_000, 600_000),
    )
    transactions = events.records(seed=seed, faults=faults, clock=instant())
    for now in clock:
        change = bank.change(now)
        if change is None:
            instants.append(now)
        yield change or next(transactions)


# The oracle: what the pipeline must make of these records.

SENT = (None, "late", "duplicate", "future")  # what silver takes, each transaction once


class Transaction(NamedTuple):
    transaction_id: str
    account_id: str
    customer_id: str
    type: str
    amount: float  # euros
    currency: str
    transfer_id: str | None
    merchant: str | None
    transaction_time: int  # epoch milliseconds, UTC

    @property
    def cents(self) -> int:
        """What it adds to its account."""
        return round(self.amount * 100) * (1 if self.type == "CREDIT" else -1)


class Version(NamedTuple):
    fields: dict[str, Any] | None  # None: it was deleted
    begin: int  # epoch milliseconds, UTC
    end: int | None


def _taken(records: Iterable[Record]) -> Iterator[tuple[int | None, Transaction]]:
    """Partition and fields of each transaction that silver holds, in the order in which they were sent."""
    known: set[str] = set()
    for record in records:
        if record.topic == TRANSACTIONS and record.fault in SENT and record.fault != "future":
            found = Transaction(**json.loads(record.value or b""))
            if found.transaction_id not in known:
                known.add(found.transaction_id)
                yield record.partition, found


def transactions(records: Iterable[Record]) -> list[Transaction]:
    """Those that silver holds: each once."""
    return [found for _, found in _taken(records)]


def history(records: Iterable[Record], topic: str) -> dict[str, list[Version]]:
    """{key → its versions, the oldest first, deletions among them}."""
    told: dict[str, dict[int, dict[str, Any] | None]] = defaultdict(dict)
    for record in (record for record in records if record.topic == topic):
        fields = json.loads(record.value) if record.value else None
        at = fields.pop("changed_at") if fields else record.timestamp_ms
        told[(record.key or b"").decode()][at] = fields
    found = {}
    for key, versions in told.items():
        times = sorted(versions)
        found[key] = [
            Version(versions[at], at, end) for at, end in zip(times, [*times[1:], None], strict=True)
        ]
    return found


def as_of(versions: Iterable[Version], at: int) -> dict[str, Any] | None:
    """The version of an instant."""
    fields = (each.fields for each in versions if each.begin <= at and (each.end is None or at < each.end))
    return next(fields, None)


def balances(records: Iterable[Record], window: int = 0) -> dict[tuple[int, str], tuple[int, int]]:
    """{(window, account) → (cents, transactions)}; windows in epoch milliseconds, of all time without one."""
    found: dict[tuple[int, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for each in transactions(records):
        key = (each.transaction_time // window * window if window else 0, each.account_id)
        found[key] = found[key][0] + each.cents, found[key][1] + 1
    return dict(found)


def customer_spend(records: Iterable[Record]) -> dict[tuple[int, int, str], tuple[int, int]]:
    """{(day, end of the hour up to which it counts, customer) → (cents, debits)}."""
    found: dict[tuple[int, int, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for each in transactions(records):
        if each.type == "DEBIT":
            day = each.transaction_time // DAY_MS * DAY_MS
            first = each.transaction_time // HOUR_MS * HOUR_MS + HOUR_MS
            for end in range(first, day + DAY_MS + 1, HOUR_MS):
                key = (day, end, each.customer_id)
                found[key] = found[key][0] - each.cents, found[key][1] + 1
    return dict(found)


def _on_time(rows: Iterable[tuple[Any, int, Any]]) -> list[Any]:
    """Of rows with their partition and time those that a process sees: their partition was not half a minute
    ahead of them."""
    rows = list(rows)
    ends = reached((partition, at) for partition, at, _ in rows)
    return [row for (*_, row), (at, most) in zip(rows, ends, strict=True) if most <= at + DELAY_MS]


class Settled(NamedTuple):
    kind: str | None
    status: str | None
    matched: bool


def settled(records: list[Record]) -> dict[str, Settled]:
    """{transaction → its account as it is known then, or within ten minutes}, up to the newest event."""
    spoken = [(partition, each.transaction_time, each) for partition, each in _taken(records)]
    told = []
    for record in (record for record in records if record.topic == ACCOUNTS):
        fields = json.loads(record.value) if record.value else None
        at = fields["changed_at"] if fields else record.timestamp_ms
        told.append((record.partition, at, ((record.key or b"").decode(), at, fields)))
    newest = max(at for _, at, _ in [*spoken, *told])
    changes: dict[str, list[tuple[int, dict[str, Any] | None]]] = defaultdict(list)
    for key, at, fields in _on_time(told):
        changes[key].append((at, fields))
    found = {}
    for each in _on_time(spoken):
        ordered = sorted(changes[each.account_id], key=lambda change: change[0])
        before = [fields for at, fields in ordered if at <= each.transaction_time]
        limit = each.transaction_time + LIMIT_MS
        after = (fields for at, fields in ordered if each.transaction_time < at <= limit and fields)
        account = (before[-1] if before else None) or next(after, None)
        if account is not None:
            found[each.transaction_id] = Settled(account["kind"], account["status"], True)
        elif limit <= newest:
            found[each.transaction_id] = Settled(None, None, False)
    return found


class Transfer(NamedTuple):
    debit: str | None  # transactions
    credit: str | None


def transfers(records: Sequence[Record]) -> list[tuple[str, Transfer]]:
    """Of each transfer its legs: together where they lie at most ten minutes apart, else alone."""
    of_transfer: dict[str, list[Transaction]] = defaultdict(list)
    for kind in ("DEBIT", "CREDIT"):  # two streams: each tells which of its own come too late
        legs = [each for each in _taken(records) if each[1].transfer_id and each[1].type == kind]
        for leg in _on_time((partition, each.transaction_time, each) for partition, each in legs):
            of_transfer[leg.transfer_id or ""].append(leg)
    found = []
    for transfer, parts in of_transfer.items():
        first, *rest = sorted(parts, key=lambda leg: leg.transaction_time)
        ids = {leg.type: leg.transaction_id for leg in parts}
        if rest and rest[0].transaction_time - first.transaction_time <= LIMIT_MS:
            found.append((transfer, Transfer(ids["DEBIT"], ids["CREDIT"])))
            continue
        for leg in parts:
            alone = Transfer(leg.transaction_id, None), Transfer(None, leg.transaction_id)
            found.append((transfer, alone[leg.type == "CREDIT"]))
    return found
