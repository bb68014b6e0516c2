"""All systems of the reference project at once, for an hour: whether a run stays as fresh and as small."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from typing import Any

from bench import lab
from bench.footprint import Footprint, seconds
from bench.freshness import summary
from bench.live import Live
from headwater.connectors import kafka
from headwater.connectors.kafka.broker import create_topics
from headwater.connectors.produce import BackgroundProducer, Faults, load_generator, wall_clock

MINUTES, PARTS = 60, 6
RATE = 200  # records a second, of each system
WARM_UP = 120.0  # seconds before the first part
FAULTS = Faults(late=0.01, duplicate=0.01, malformed=0.001, invalid=0.001)
SYSTEMS = [path.stem for path in sorted((lab.ROOT / "generators").glob("*.py"))]


def measure(minutes: int = MINUTES, rate: int = RATE) -> dict[str, Any]:
    """{part of the time → memory in GB, cores, batches, and seconds from a record to its commit in gold}; and
    the last part's figures in relation to the first one's."""
    home = lab.prepare(home="soak")
    project = lab.load(home)
    client = kafka.client_options(project.conf, kafka.ensure_running(home, project.conf))
    found = []
    with ExitStack() as sent:
        for at, system in enumerate(SYSTEMS):
            generator: Any = load_generator(home, system)
            create_topics(client, generator.topics)
            records = generator.records(seed=at, faults=FAULTS, clock=wall_clock())
            sent.enter_context(BackgroundProducer(records, client=client, rate=rate))
        with Live(home) as live:
            time.sleep(WARM_UP)
            for number in range(1, PARTS + 1):
                found.append(_part(live, 60 * minutes / PARTS))
                print(number, json.dumps(found[-1]), file=sys.stderr, flush=True)
    first, last = found[0], found[-1]
    return {
        **{f"part {number} of {PARTS}": part for number, part in enumerate(found, 1)},
        "last to first": {
            "memory": round(last["memory, GB"] / first["memory, GB"], 2),
            "cores": round(last["cores"] / first["cores"], 2),
            "gold, p50": round(last["gold"]["p50"] / first["gold"]["p50"], 2),
            "gold, p99": round(last["gold"]["p99"] / first["gold"]["p99"], 2),
        },
    }


def _part(live: Live, lasts: float) -> dict[str, Any]:
    live.batches.clear()
    began, taken = time.monotonic(), seconds(live.process)
    with Footprint(live.process) as footprint:
        live.wait(lambda: time.monotonic() - began > lasts, within=lasts + 60)
    ages = [
        batch.freshness
        for batch in live.batches
        if batch.flow.startswith("gold.") and batch.freshness is not None and batch.rows_in
    ]
    return {
        "memory, GB": footprint.most,
        "cores": round((seconds(live.process) - taken) / (time.monotonic() - began), 2),
        "batches": len(live.batches),
        "gold": summary(ages),
    }
