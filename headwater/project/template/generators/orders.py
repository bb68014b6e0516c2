"""Made-up orders, for `headwater demo` and `headwater produce orders`; real ones come from your own topic."""

from headwater.connectors.produce import Topic
from headwater.connectors.produce.events import MALFORMED, Draw, Events

ITEMS = {"tea": 3.5, "coffee": 4.2, "bread": 2.8, "cheese": 7.9, "honey": 6.0}  # euros apiece

topics = [Topic("orders", partitions=2)]
shown = "gold.revenue_1m ORDER BY minute DESC, revenue DESC"  # what the demo ends with


def _order(draw: Draw, now: int) -> dict[str, object]:
    """An order that is made at `now` (epoch milliseconds); all that is random comes from `draw`."""
    item = list(ITEMS)[int(draw() * len(ITEMS))]
    return {
        "order_id": f"{now}-{int(draw() * 1e9):09d}",
        "item": item,
        "quantity": 1 + int(draw() * 4),
        "price": ITEMS[item],
        "ordered_at": now - int(draw() * 2_000),
    }


records = Events(
    topic="orders",
    partitions=2,
    key="order_id",
    time="ordered_at",
    draw=_order,
    malformed=MALFORMED,
    invalid={
        "no_item": lambda order: {**order, "item": None},
        "no_quantity": lambda order: {**order, "quantity": 0},
    },
    late=(13_000, 600_000),
).records
