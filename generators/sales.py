"""Purchases of forty items, of which a few sell much; and the right answers in plain Python.

Topic `purchases`: {purchase_id, item_id, quantity, amount in euros, purchase_time in epoch ms UTC}, keyed by
item_id. Which items sell most changes every hour. A duplicate has the purchase_id of the purchase that it
repeats, and is no second sale.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

from headwater.connectors.produce import Record, Topic
from headwater.connectors.produce.events import MALFORMED, Draw, Events

TOPIC = "purchases"
ITEMS = [f"item-{number:02d}" for number in range(40)]
HOUR_MS = 3_600_000

topics = [Topic(TOPIC, partitions=4)]
shown = "gold.top_sellers ORDER BY place"


def _purchase(draw: Draw, now: int) -> dict[str, Any]:
    best = crc32(b"%d" % (now // HOUR_MS)) % len(ITEMS)
    at = int(draw() ** 3 * len(ITEMS))  # the first ones sell most
    quantity = 1 + int(draw() * 4)
    return {
        "purchase_id": f"{now}-{int(draw() * 1e9):09d}",
        "item_id": ITEMS[(best + at) % len(ITEMS)],
        "quantity": quantity,
        "amount": round(quantity * (1 + at) * (0.5 + draw()), 2),
        "purchase_time": now - int(draw() * 2_000),
    }


INVALID = {
    "no_item": lambda event: {**event, "item_id": None},
    "no_quantity": lambda event: {**event, "quantity": 0},
    "negative_amount": lambda event: {**event, "amount": -1.0},
}
EVENTS = Events(
    topic=TOPIC,
    partitions=4,
    key="item_id",
    time="purchase_time",
    draw=_purchase,
    malformed=MALFORMED,
    invalid=INVALID,
    late=(13_000, 2 * HOUR_MS),
)


records = EVENTS.records


# The oracle: what the pipeline must make of these records.


class Purchase(NamedTuple):
    purchase_id: str
    item_id: str
    quantity: int
    amount: float
    purchase_time: int  # epoch milliseconds, UTC


def purchases(records: Iterable[Record]) -> list[Purchase]:
    """Those that silver holds: each once."""
    found: dict[str, Purchase] = {}
    for record in records:
        if record.fault is None or record.fault in ("late", "duplicate", "future"):
            assert record.value is not None
            purchase = Purchase(**json.loads(record.value))
            found.setdefault(purchase.purchase_id, purchase)
    return list(found.values())


Sales = dict[tuple[int, str], tuple[int, float, int]]


def item_sales(records: Iterable[Record], window_ms: int | None = None) -> Sales:
    """{(window start, item_id) → (quantity, amount, purchases)}; without windows the start is 0."""
    found: Sales = {}
    for purchase in purchases(records):
        start = purchase.purchase_time // window_ms * window_ms if window_ms else 0
        quantity, amount, count = found.get((start, purchase.item_id), (0, 0.0, 0))
        found[start, purchase.item_id] = (quantity + purchase.quantity, amount + purchase.amount, count + 1)
    return found


def top(sales: Sales, n: int) -> dict[tuple[int, int], str]:
    """{(window start, place) → item_id} of the n items with the greatest amounts of each window."""
    found = {}
    for start in {start for start, _ in sales}:
        ranked = sorted((-amount, item) for (at, item), (_, amount, _) in sales.items() if at == start)
        found.update({(start, place): item for place, (_, item) in enumerate(ranked[:n], start=1)})
    return found
