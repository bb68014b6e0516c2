"""When buses fell silent: what `gold.silent_buses` shows while it lasts, kept."""

from collections.abc import Iterator
from datetime import timedelta

import headwater as hw

PATIENCE = timedelta(minutes=2)


@hw.process(
    source="silver.bus_positions",
    keys=["bus_id"],
    event_time="event_time",
    delay="30 seconds",
    state="route_id STRING, lat DOUBLE, lon DOUBLE",
    columns="bus_id STRING, silent_since TIMESTAMP, route_id STRING, lat DOUBLE, lon DOUBLE",
)
def bus_silences(report: hw.Row | None, bus: hw.Keyed) -> Iterator[hw.Row]:
    """One row for each time that a bus did not report for two minutes: since when (UTC), and where it was."""
    if report is not None:
        bus.state = {name: report[name] for name in ("route_id", "lat", "lon")}
        bus.wake(bus.now + PATIENCE)
    elif bus.state is not None:
        yield {**bus.key, "silent_since": bus.now - PATIENCE, **bus.state}
        bus.forget()
