"""Records are erased from a lake that runs before and after, with real kills: all others stay, once."""

from __future__ import annotations

import json
import random

import pytest
from harness import BRONZE, GOLD, SEED, SILVER, Project, assert_same, once_each
from oracles import positions

from headwater.storage.erasure import NOTE

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]

HOST = "happy"
STEPS = ("noted", "written", "taken", "forgotten", "rebuilt", "published")


def test_a_host_is_erased_whatever_is_killed(project: Project) -> None:
    draw = random.Random(SEED)
    project.produce(10_000)
    with project.run() as live:
        live.until(project.caught_up, "the first records")
        refused = project.tried("erase", SILVER, "--where", f"hostname = '{HOST}'", "--yes")
        assert refused.returncode == 1 and f"process {live.pid} is writing it" in refused.stderr
    project.once()
    erase = ("erase", SILVER, "--where", f"hostname = '{HOST}'", "--yes")
    for step in sorted(draw.sample(STEPS, 4), key=STEPS.index):
        tried = project.tried(*erase, fail=f"{step}:erase:1=python")
        assert tried.returncode == -9, (step, tried.stderr)
        assert (project.conf.lake / NOTE).exists()
        erase = ("erase",)  # goes on
    refused = project.tried("run", "--once")
    assert refused.returncode == 1 and "headwater erase ends it" in refused.stderr
    (done,) = json.loads(project.headwater("erase", "--json"))
    assert done["searched"]["files"] > 0 and any(
        "of the records in the topic" in each for each in done["left"]
    )

    sent = positions(project.records)
    place = 'partition, "offset"'
    left = {row[:2] for row in project.rows(BRONZE, place)}
    gone = sent.keys() - left
    assert left <= sent.keys() and len(gone) == done["records"] > 1_000
    for at, record in sent.items():
        well_formed = not (record.fault or "").startswith("malformed")
        assert (at in gone) == (well_formed and json.loads(record.value).get("hostname") == HOST), record
    assert not [
        row for row in project.rows(SILVER, "hostname") + project.rows(GOLD, "hostname") if HOST in row
    ]

    project.produce(3_000)  # of all hosts
    with project.run() as live, project.producing(rate=300):
        live.batch(GOLD)
    project.once()
    want = {at: (r.value,) for at, r in positions(project.records).items() if at not in gone}
    assert_same("bronze", want, once_each("bronze", project.rows(BRONZE, f"{place}, value"), 2))
    (silver, gold) = json.loads(project.headwater("reconcile", SILVER, GOLD, "--json"))
    assert silver["same"] and gold["same"]
