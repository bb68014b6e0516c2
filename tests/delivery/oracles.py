"""What the tables of each system must hold: what plain Python makes of the records that were sent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from harness import BRONZE, FINAL, GOLD, HOT, LATE, QUARANTINE, SILVER, Project, assert_same, once_each

from headwater.connectors.produce import Record

HOUR_MS = 3_600_000
POSITIONS, SILENCES = "gold.bus_positions", "gold.bus_silences"
SESSIONS, COUNTS = "gold.web_sessions", "gold.page_views_1m"


def positions(records: Iterable[Record]) -> dict[tuple[int, int], Record]:
    """{(partition, offset) → record}: offsets count up as the records of a partition were sent."""
    ends: Counter[int] = Counter()
    found = {}
    for record in records:
        assert record.partition is not None
        found[record.partition, ends[record.partition]] = record
        ends[record.partition] += 1
    return found


def assert_bronze_and_silver(project: Project) -> None:
    """Bronze holds each record once, as sent; silver and quarantine share it out without overlap."""
    sent = positions(project.records)
    bronze = once_each("bronze", project.rows(BRONZE, 'partition, "offset", key, value'), 2)
    assert_same("bronze", {at: (r.key, r.value) for at, r in sent.items()}, bronze)
    assert_silver(project)

    oracle = project.generator
    columns = 'partition, "offset", value, rules'
    quarantine = once_each("quarantine", project.rows(QUARANTINE, columns), 2)
    rejects = {
        at: (r.value, list(oracle.rules(r.fault))) for at, r in sent.items() if not oracle.kept(r.fault)
    }
    assert_same("quarantine", rejects, quarantine)


def assert_silver(project: Project) -> None:
    """Silver holds what is kept of the records."""
    sent, oracle = positions(project.records), project.generator
    source = '_source.partition, _source."offset"'
    silver = once_each("silver", project.rows(SILVER, f"{source}, hostname, cpu, usage, occurred_at"), 2)
    good = [at for at, record in sent.items() if oracle.kept(record.fault)]
    readings = oracle.silver(sent[at] for at in good)
    assert_same("silver", dict(zip(good, map(tuple, readings), strict=True)), silver)


def gold(project: Project) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """{(window start in epoch ms, hostname, cpu) → (average, maximum, count)}."""
    columns = "epoch_ms(window_start), hostname, cpu, avg_usage, max_usage, _partial.avg_usage_count"
    return once_each("gold", project.rows(GOLD, columns), 3)


def assert_gold(
    want: dict[tuple[Any, ...], tuple[Any, ...]], got: dict[tuple[Any, ...], tuple[Any, ...]]
) -> None:
    """Averages are equal at 1e-9 relative; windows, maxima and counts exactly."""

    def rounded(key: tuple[Any, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
        average = want.get(key, (None,))[0]
        if average is None or value[0] is None:
            return value
        return (average, *value[1:]) if math.isclose(value[0], average, rel_tol=1e-9) else value

    assert_same("gold", want, {key: rounded(key, value) for key, value in got.items()})


def assert_lake_equals_oracle(project: Project) -> None:
    """Every table of the lake holds exactly what the records that were sent make of it."""
    assert_bronze_and_silver(project)
    assert_all_gold(project)


def assert_all_gold(project: Project) -> None:
    """So do all tables of gold."""
    want = project.generator.cpu_usage_5m(project.records)
    assert_gold({tuple(key): tuple(usage) for key, usage in want.items()}, gold(project))
    assert_finals(project)
    assert_hot(project)


def assert_finals(project: Project) -> None:
    """Each window that is over was appended once; the others are open; final, open and late are all."""
    over, opened, late = project.generator.cpu_usage_5m_final(project.records)
    columns = "epoch_ms(window_start), hostname, cpu, avg_usage, max_usage"
    for table, want in ((FINAL, over), (f"{FINAL}__state", opened)):
        found = once_each(table, project.rows(table, columns), 3)
        assert_gold({tuple(key): tuple(usage[:2]) for key, usage in want.items()}, found)
    assert len(project.rows(LATE, "1")) == late


def assert_hot(project: Project) -> None:
    """The view holds the final windows above their host's threshold, as the reference table is now."""
    lines = (project.root / "conf" / "reference" / "hosts.csv").read_text().splitlines()[1:]
    hosts = {name: (site, float(threshold)) for name, site, threshold in (line.split(",") for line in lines)}
    final = "epoch_ms(window_start), hostname, cpu, avg_usage, max_usage"
    want = {
        key: (hosts[key[1]][0], average, hosts[key[1]][1], average - hosts[key[1]][1])
        for key, (average, _) in once_each("final", project.rows(FINAL, final), 3).items()
        if key[1] in hosts and average is not None and average > hosts[key[1]][1]
    }
    columns = "epoch_ms(window_start), hostname, cpu, site, avg_usage, alert_threshold, above"
    assert_same("hot", want, once_each("hot", project.rows(HOT, columns), 3))


def assert_sales(project: Project) -> None:
    """Purchases, running totals, hours and leaderboards."""
    oracle = project.generator
    purchases = {p.purchase_id: p[1:] for p in oracle.purchases(project.records)}
    columns = "purchase_id, item_id, quantity, amount, purchase_time"
    silver = once_each("silver", project.rows("silver.purchases", columns), 1)
    assert_same("silver", {(key,): value for key, value in purchases.items()}, silver)

    def rounded(sales: dict[Any, Any]) -> dict[Any, Any]:
        return {key: (quantity, round(amount, 6), n) for key, (quantity, amount, n) in sales.items()}

    in_all, by_hour = oracle.item_sales(project.records), oracle.item_sales(project.records, HOUR_MS)
    assert_same("totals", rounded(in_all), _totals(project, "gold.item_sales", "0, item_id"))
    hours = _totals(project, "gold.item_sales_1h", "epoch_ms(window_start), item_id")
    assert_same("by hour", rounded(by_hour), hours)

    top = once_each("top", project.rows("gold.top_sellers", "0, place, item_id, amount"), 2)
    assert_same("top", {at: (item,) for at, item in oracle.top(in_all, 10).items()}, _items(top))
    assert all(math.isclose(amount, in_all[0, item][1], rel_tol=1e-9) for item, amount in top.values())
    top = once_each("top", project.rows("gold.top_sellers_1h", "epoch_ms(window_start), place, item_id"), 2)
    assert_same("top by hour", {at: (item,) for at, item in oracle.top(by_hour, 3).items()}, _items(top))


def _totals(project: Project, table: str, keys: str) -> dict[Any, Any]:
    rows = project.rows(table, f"{keys}, quantity, amount, purchases")
    return {key: (q, round(a, 6), n) for key, (q, a, n) in once_each(table, rows, 2).items()}


def _items(top: dict[Any, Any]) -> dict[Any, Any]:
    return {at: (row[0],) for at, row in top.items()}


def assert_rides(project: Project) -> None:
    """Rides, and the counts and trends of sliding windows."""
    rides = project.rows("silver.lift_rides", "resort_id, lift_id, skier_id, ride_time")
    assert sorted(rides) == sorted(map(tuple, project.generator.rides(project.records)))
    busy = {at: tuple(found) for at, found in project.generator.lift_rides_10m(project.records).items()}
    columns = "epoch_ms(window_start), resort_id, lift_id, rides, rides_before, trend"
    assert_same("trends", busy, once_each("trends", project.rows("gold.lift_rides_10m", columns), 3))
    assert {trend for _, _, trend in busy.values()} >= {"increasing", "decreasing"}


def assert_web(project: Project) -> None:
    """Views, visits that are over and those that are open, views per minute, and how many came late."""
    views = [view[:3] for view in project.generator.views(project.records)]
    assert sorted(project.rows("silver.page_views", "user_id, page, viewed_at")) == sorted(views)

    visits = project.generator.web_sessions(project.records)
    assert len(visits.over) > 500 < visits.late
    assert_same("visits that are over", visits.over, _visits(project, SESSIONS))
    assert_same("visits that are open", visits.open, _visits(project, f"{SESSIONS}__state"))
    assert len(project.rows(f"{SESSIONS}_late", "1")) == visits.late

    counts, late = project.generator.page_views_1m(project.records)
    columns = "epoch_ms(window_start), page, views"
    want = {key: (n,) for key, n in counts.items()}
    assert_same("views per minute", want, once_each(COUNTS, project.rows(COUNTS, columns), 2))
    assert late
    assert len(project.rows(f"{COUNTS}_late", "1")) == late


def assert_visits_ended(project: Project) -> None:
    """After the end of the input every visit is over."""
    visits = project.generator.web_sessions(project.records)
    assert_same("all visits", {**visits.over, **visits.open}, _visits(project, SESSIONS))
    assert not project.rows(f"{SESSIONS}__state", "*")


def _visits(project: Project, table: str) -> dict[object, object]:
    columns = "user_id, epoch_ms(session_start), epoch_ms(session_end), views"
    return dict(once_each(table, project.rows(table, columns), 2))


def assert_buses(project: Project) -> None:
    """Reports, and where each bus is and will be."""
    columns = "bus_id, route_id, lat, lon, reported_at"
    reports = project.generator.reports(project.records)
    assert sorted(project.rows("silver.bus_positions", columns)) == sorted(map(tuple, reports))
    want = project.generator.bus_positions(project.records)
    columns = "bus_id, route_id, lat, lon, epoch_ms(reported_at), speed, next_stop, epoch_ms(arrival)"

    got = once_each(POSITIONS, project.rows(POSITIONS, columns), 1)
    exact = {(bus,): (p.route_id, p.lat, p.lon, p.reported_at, p.next_stop) for bus, p in want.items()}
    assert_same("positions", exact, {bus: (*row[:4], row[5]) for bus, row in got.items()})
    for (bus,), (*_, speed, _, arrival) in got.items():
        assert _near(speed, want[bus].speed, 1e-6) and _near(arrival, want[bus].arrival, 2.0), bus
    assert any(p.speed for p in want.values())


def assert_silences(project: Project) -> None:
    """After the end of the input: each silence once, and where the bus was then."""
    want = project.generator.bus_silences(project.records)
    columns = "bus_id, epoch_ms(silent_since), route_id, lat, lon"
    got = once_each(SILENCES, project.rows(SILENCES, columns), 2)
    assert_same("silences", {tuple(at): (r.route_id, r.lat, r.lon) for at, r in want.items()}, got)
    assert len(got) > 60, "every bus is silent now and then"


def _near(one: float | None, other: float | None, tolerance: float) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=tolerance)
