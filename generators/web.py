"""Views of a shop's pages by people who come, look around and leave; and the right answers in plain Python.

Topic `page-views`: {user_id, page, referrer, viewed_at in epoch ms UTC}, keyed by user_id. Nothing in a view
tells one that was sent twice from a page that was loaded again, so both count.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from headwater.connectors.produce import Record, Topic
from headwater.connectors.produce.events import MALFORMED, Draw, Events, reached

TOPIC = "page-views"
USERS, VISIT_MS = 1_600, 420_000  # a user is there for seven minutes, and then away for three times as long
PAGES = ("/", "/search", "/cart", "/checkout", *(f"/item/{n}" for n in range(1, 17)))
REFERRERS = (None, None, "https://search.example", "https://news.example")
GAP_MS, DELAY_MS = 300_000, 15_000
SIZE_MS, SLIDE_MS, ALLOWED_MS = 60_000, 30_000, 60_000

topics = [Topic(TOPIC, partitions=4)]
shown = "gold.page_views_1m ORDER BY window_start DESC, views DESC, page"


def _view(draw: Draw, now: int) -> dict[str, Any]:
    user = int(draw() * USERS / 4) * 4 + now // VISIT_MS % 4  # whose turn it is
    return {
        "user_id": f"user-{user:04d}",
        "page": PAGES[int(draw() ** 2 * len(PAGES))],
        "referrer": REFERRERS[int(draw() * len(REFERRERS))],
        "viewed_at": now - int(draw() * 10_000),
    }


EVENTS = Events(
    topic=TOPIC,
    partitions=4,
    key="user_id",
    time="viewed_at",
    draw=_view,
    malformed=MALFORMED,
    invalid={
        "no_user": lambda event: {**event, "user_id": None},
        "no_path": lambda event: {**event, "page": "javascript:void(0)"},
    },
    late=(16_000, 600_000),
)
records = EVENTS.records


# The oracle: what the pipeline must make of these records.


class View(NamedTuple):
    user_id: str
    page: str
    viewed_at: int  # epoch milliseconds, UTC
    partition: int | None
    reached: int  # the latest view of its partition so far, itself included


def views(records: Iterable[Record]) -> list[View]:
    """Those that silver holds."""
    good = [record for record in records if record.fault in (None, "late", "duplicate", "future")]
    rows = [json.loads(record.value or b"") for record in good]
    places = reached((record.partition, row["viewed_at"]) for record, row in zip(good, rows, strict=True))
    return [
        View(row["user_id"], row["page"], time, record.partition, most)
        for record, row, (time, most) in zip(good, rows, places, strict=True)
    ]


class Sessions(NamedTuple):
    over: dict[tuple[str, int], tuple[int, int]]  # (user_id, start) → (end in epoch ms UTC, views)
    open: dict[tuple[str, int], tuple[int, int]]
    late: int  # views


def web_sessions(records: Iterable[Record]) -> Sessions:
    """Visits. A view is late when its partition is more than 15 s ahead of it; a session ends 5 minutes after
    its last view, and is over when all partitions are more than 15 s ahead of that."""
    found = views(records)
    low = min(max(v.viewed_at for v in found if v.partition == p) for p in {v.partition for v in found})
    on_time: dict[str, list[int]] = defaultdict(list)
    for view in found:
        if view.reached <= view.viewed_at + DELAY_MS:
            on_time[view.user_id].append(view.viewed_at)
    sessions: dict[tuple[str, int], tuple[int, int]] = {}
    for user, times in on_time.items():
        start = end = count = 0
        for time in sorted(times):
            if time > end:
                start, count = time, 0
            end, count = time + GAP_MS, count + 1
            sessions[user, start] = (end, count)
    over = {key: value for key, value in sessions.items() if value[0] + DELAY_MS < low}
    still = {key: value for key, value in sessions.items() if key not in over}
    return Sessions(over, still, len(found) - sum(map(len, on_time.values())))


def page_views_1m(records: Iterable[Record]) -> tuple[Counter[tuple[int, str]], int]:
    """{(window start in epoch ms UTC, page) → views}; and how many came too late, once for each window."""
    counts: Counter[tuple[int, str]] = Counter()
    late = 0
    for view in views(records):
        last = view.viewed_at // SLIDE_MS * SLIDE_MS
        for start in range(last - SIZE_MS + SLIDE_MS, last + 1, SLIDE_MS):
            if view.reached >= start + SIZE_MS + DELAY_MS + ALLOWED_MS:
                late += 1
            else:
                counts[start, view.page] += 1
    return counts, late
