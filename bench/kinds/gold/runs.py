"""What a process costs: one call a row, a state and a timer for each core of each host."""

from datetime import timedelta

import headwater as hw


@hw.process(
    source="silver.cpu_metrics",
    keys=["hostname", "cpu"],
    event_time="event_time",
    delay="10 seconds",
    state="readings BIGINT, total DOUBLE",
    columns="hostname STRING, cpu STRING, ended TIMESTAMP, readings BIGINT, total DOUBLE",
)
def runs(reading, core):
    """Readings of a core with less than half a second between them, added up."""
    if reading is None:
        yield {**core.key, "ended": core.now, **core.state}
        core.forget()
        return
    before = core.state or {"readings": 0, "total": 0.0}
    core.state = {"readings": before["readings"] + 1, "total": before["total"] + (reading["usage"] or 0.0)}
    core.wake(core.now + timedelta(milliseconds=500))
