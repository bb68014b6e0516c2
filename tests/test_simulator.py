"""The commit protocol under what can happen to processes and to the medium: schedules by seeds.

`--seed N` runs the schedule of that seed alone.
"""

from __future__ import annotations

import random
import sys

import pytest
from simulator.schedule import Wrong, run
from simulator.world import DEADLY

SCHEDULES, SLICES = 100, 5  # in `make test`
MANY, OF_EACH = 6, 500  # in `make torture`
OPENED = {("headwater.common.scratch", "_open")}  # by who first needs it, for all


def several(first: int, count: int) -> set[str]:
    """Run the schedules of seeds; all that happened in them."""
    print(f"seeds from {first} on")
    wrong, happened = [], set[str]()
    for seed in range(first, first + count):
        try:
            happened |= run(seed).happened()
        except Wrong as e:
            wrong.append(str(e))
    assert not wrong, f"{len(wrong)} of {count} schedules:\n\n" + "\n\n".join(wrong[:3])
    return happened


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
    faults = {*DEADLY, "lost", "again", "pause", "delay"}
    assert several(random.randrange(2**32), OF_EACH) >= {*faults, "rebuilt", "replayed", "put back"}


@pytest.mark.parametrize("seed", [1, 7, 78])
def test_a_seed_is_a_schedule(seed: int) -> None:
    assert run(seed).trace() == run(seed).trace()


def test_what_comes_after_a_schedule_meets_the_engine_as_it_was() -> None:
    run(1)  # what loads modules
    before = held()
    run(2)
    after = held()
    assert after.keys() == before.keys()
    assert not [name for name, each in after.items() if each is not before[name] and name not in OPENED]


def held() -> dict[tuple[str, str], object]:
    """What each module of the engine calls by which name."""
    engine = [(name, each) for name, each in sys.modules.items() if name.startswith("headwater.")]
    return {(name, attribute): value for name, each in engine for attribute, value in vars(each).items()}
