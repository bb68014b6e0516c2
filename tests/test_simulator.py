"""The commit protocol under what can happen to processes and to the medium: schedules by seeds.

`--seed N` runs the schedule of that seed alone.
"""

from __future__ import annotations

import random

import pytest
from simulator.schedule import Wrong, run

SCHEDULES, SLICES = 500, 5  # in `make test`
MANY, OF_EACH = 20, 500  # in `make torture`


def several(first: int, count: int) -> None:
    print(f"seeds from {first} on")
    wrong = []
    for seed in range(first, first + count):
        try:
            run(seed)
        except Wrong as e:
            wrong.append(str(e))
    assert not wrong, f"{len(wrong)} of {count} schedules:\n\n" + "\n\n".join(wrong[:3])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(SLICES))
def test_nothing_is_lost_doubled_or_seen_half(part: int, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed")
    if seed is None:
        several(random.randrange(2**32), SCHEDULES // SLICES)
    elif part == 0:
        several(int(seed), 1)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(MANY))
def test_nothing_is_lost_doubled_or_seen_half_in_many_schedules(part: int) -> None:
    several(random.randrange(2**32), OF_EACH)


@pytest.mark.parametrize("seed", [1, 7, 78])
def test_a_seed_is_a_schedule(seed: int) -> None:
    assert run(seed).trace() == run(seed).trace()
