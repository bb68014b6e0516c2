"""The engine in a world, whose store, clock and locks it has, without Spark and without a JVM."""

from __future__ import annotations

import gc
import random
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from headwater.common import times
from headwater.flows import derived, ranged
from headwater.operations import replay as replaying
from headwater.runtime import failpoints
from headwater.storage import lake, lease, log, open_table, ranges, snapshots, store, target
from headwater.storage.lake import Lake

from . import flows
from .flows import Applied, Replayed
from .medium import Channel, Medium
from .world import DEADLY, Mutex, World

_COMPACT = "headwater.operations.maintain.compact"


@contextmanager
def simulated(world: World) -> Iterator[Medium]:
    """Have the engine run in a world: its store, its clock, its locks, and no JVM."""
    medium = Medium(world)
    ids = random.Random(world.draw.random())

    def reach(step: str, flow: str) -> None:
        fault = world.step(f"- {step}", flow, is_write=True)
        process = world.process
        table = flows.SILVER if flow == flows.REPLAY else flow
        if table in flows.COLUMNS and step in failpoints.STEPS and process is not None:
            mine = [path for path, by in medium.holders.items() if by is process and path.name == "lease"]
            halves = [
                medium.holders.get(path.with_name("lease.jvm")) for path in mine if path.parts[-3] == table
            ]
            assert process.jvm in halves, f"{flow}: {step} without both halves of its lease"
        if fault is not None and fault.kind in DEADLY:
            world.die()

    def context(project: Any, *_: object) -> flows.Run:
        return flows.context_of(world, project, Lake(world.root))

    def channel(path: Path) -> Channel:
        assert world.process is not None and world.process.jvm is not None
        return Channel(medium, path, world.process.jvm)

    before = store.use(medium)
    gc_was_on = gc.isenabled()
    gc.disable()
    flows.tries = flows.Tries()
    try:
        with (
            patch.object(times, "clock", world),
            patch.object(log, "_heads", {}),  # these five are another process's with each turn
            patch.object(snapshots, "_OPEN", snapshots._OPEN),
            patch.multiple(target, _OPEN=target._OPEN, _OPENING=target._OPENING),
            patch.object(lake, "_LOCK", lake._LOCK),
            patch.object(failpoints, "reach", reach),
            patch.object(ranged, "Applied", Applied),
            patch.object(derived, "Replay", Replayed),
            patch.object(
                replaying, "Context", lambda project, *_: flows.context_of(world, project, Lake(world.root))
            ),
            patch.object(replaying, "analysis", SimpleNamespace(analyse=lambda *_: {})),
            patch.object(replaying, "sessions", SimpleNamespace(start=lambda _: None)),
            patch.object(replaying, "flow_of", flows.flow_of),
            patch.object(lease, "_channel", channel),
            patch.object(lease, "jvm", SimpleNamespace(pid=lambda: 0)),
            patch.object(open_table, "threading", SimpleNamespace(Lock=lambda: Mutex(world))),
            patch.object(snapshots, "threading", SimpleNamespace(Lock=lambda: Mutex(world))),
            patch.object(sys.modules[_COMPACT], "FEWEST", 2),
            patch.object(ranges, "UNTOLD", 3),
            patch.object(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
        ):
            yield medium
    finally:
        store.use(before)
        if gc_was_on:
            gc.enable()
