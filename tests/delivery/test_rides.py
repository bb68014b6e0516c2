"""The system `rides`: counts of sliding windows, and their trends, are plain Python's, whatever is killed."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
from harness import SEED, Project, assert_same, once_each

from headwater.produce import Faults

FAULTS = Faults(late=0.02, duplicate=0.02, malformed=0.01, invalid=0.01)


@pytest.mark.parametrize(
    ("kills", "each"), [(1, 30_000), pytest.param(10, 30_000, marks=pytest.mark.torture)]
)
def test_counts_and_trends_equal_the_oracle_after_kills(tmp_path: Path, kills: int, each: int) -> None:
    project = Project(tmp_path / "project", "rides", faults=FAULTS)
    draw = random.Random(SEED)
    flows = ["silver.lift_rides", "gold.lift_ride_counts", "gold.lift_rides_10m"]
    try:
        for _ in range(kills):
            project.produce(each)
            with project.run() as run:
                run.batch(draw.choice(flows))
                run.kill(signal.SIGKILL)
                run.wait()
        project.once()
        rides = project.rows("silver.lift_rides", "resort_id, lift_id, skier_id, ride_time")
        assert sorted(rides) == sorted(map(tuple, project.generator.rides(project.records)))
        busy = {at: tuple(found) for at, found in project.generator.lift_rides_10m(project.records).items()}
        columns = "epoch_ms(window_start), resort_id, lift_id, rides, rides_before, trend"
        assert_same("trends", busy, once_each("trends", project.rows(flows[-1], columns), 3))
        assert {trend for _, _, trend in busy.values()} >= {"increasing", "decreasing"}
    finally:
        project.broker.stop()
