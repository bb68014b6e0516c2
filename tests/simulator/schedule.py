"""One seed is one schedule: who does what, what happens to them, and what must hold when all have ended."""

from __future__ import annotations

import atexit
import itertools
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from headwater.errors import HeadwaterError, LeaseError
from headwater.project.definitions import Limits
from headwater.storage.lake import Lake
from headwater.storage.lease import Lease

from . import flows
from .actors import Running, rebuild, replay
from .engine import simulated
from .flows import BRONZE, COPY, GOLD, SILVER, Project
from .invariants import View, check_all, check_left, check_replayed
from .medium import Medium
from .world import DEADLY, SHOWN, Fault, Process, World

HOURS = 3600.0
WATCHED = 40  # times that a reader looks whether all tables are swapped, or none
_NUMBERS = itertools.count()


_HELD = ("LEASE_HELD", "LEASE_HELD_BY_JVM")


class Wrong(AssertionError):  # noqa: N818
    """What a schedule showed, with the seed that shows it again and the steps that led to it."""


@dataclass(frozen=True)
class Shape:
    """What is drawn of a schedule before it begins.

    Attributes:
        lives: how often the run is begun; it has faults in all but the last.
        upkeep: after how many seconds maintenance comes, each time, in each life.
        rebuilds, replays, readers: how many processes do that.
        is_new: whether the lake has no tables yet.
        restored: what is put back as it was at some moment: `lake`, or the name of a table; "": nothing.
    """

    project: Project
    lives: int
    upkeep: tuple[float, ...]
    rebuilds: int
    replays: int
    readers: int
    is_new: bool
    restored: str


def shape_of(draw: random.Random, lake: Path) -> Shape:
    """Draw one."""
    chain = draw.choices([(SILVER,), (SILVER, GOLD), (SILVER, GOLD, COPY)], [60, 32, 8])[0]
    restored = draw.choices(["", "lake", BRONZE, SILVER, GOLD], [82, 4, 6, 5, 3])[0]
    upkeep = tuple(draw.choice([0.05, 3 * HOURS]) for _ in range(draw.choice([0, 0, 0, 0, 0, 1, 1, 2])))
    rebuilds = draw.choices([0, 1], [85, 15])[0] if not restored else 0
    expires = bool(upkeep) and not rebuilds and not restored and draw.random() < 0.3
    limits = Limits(max_rows_per_batch=draw.choice([None, 3]))
    project = Project(
        draw.randint(3, 8),
        chain,
        limits,
        lake=lake,
        retention="2 hours" if expires else None,
        checkpoint=draw.choice([2, 3, 20, 20]),
    )
    return Shape(
        project,
        lives=draw.choice([1, 2, 2]),
        upkeep=upkeep,
        rebuilds=rebuilds,
        replays=draw.choices([0, 1], [75, 25])[0],
        readers=1 if rebuilds else draw.choices([0, 1], [50, 50])[0],
        is_new=draw.random() < 0.1,
        restored=restored if restored in ("", "lake", BRONZE, *chain) else "lake",
    )


def run(seed: int) -> World:
    """Run the schedule of a seed; the world, which knows the steps that were taken.

    Raises:
        Wrong: something did not hold.
    """
    draw = random.Random(seed)
    root = _folder() / str(next(_NUMBERS))
    world = World(root / "lake", draw)
    shape = shape_of(draw, world.root)
    if not shape.is_new:
        shutil.copytree(_template(), world.root)
    try:
        with simulated(world) as medium:
            _Schedule(world, medium, shape, root).run()
    except BaseException as e:
        shown = "\n".join(world.trace(SHOWN))
        what = f"seed {seed}: {type(e).__name__}: {e}\n{shape}\n{shown}"
        raise Wrong(f"{what}\nagain: python -m tests.simulator {seed}") from e
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return world


class _Schedule:
    """What happens, in order."""

    def __init__(self, world: World, medium: Medium, shape: Shape, root: Path) -> None:
        self._world, self._medium, self._shape = world, medium, shape
        self._draw = world.draw
        self._copy = root / "copy"
        self._runs: list[Running] = []

    def run(self) -> None:
        world, shape, project = self._world, self._shape, self._shape.project
        self._begin("run", self._lives, faulty=False)
        for number in range(shape.readers):
            self._begin(f"reader {number}", lambda: self._look())
        for number in range(shape.replays):
            self._begin(f"replay {number}", lambda: self._later(replay), faulty=True)
        for number in range(shape.rebuilds):
            self._begin(f"rebuild {number}", lambda: self._later(rebuild), faulty=True)
        if shape.restored:
            self._begin("copy", lambda: self._take_copy())
        world.run()
        refused = [why for each in self._runs for why in each.refused if not each.process.struck]
        assert not refused, f"nothing happened to it, and it says: {refused[0]!r}"
        if shape.restored:
            self._put_back()
        last = self._runs[-1]
        if last.is_whole and not shape.restored and not shape.replays:
            check_all(world, project, expired=project.retention is not None)
        if not last.is_whole or shape.restored or shape.replays or shape.rebuilds:
            last = self._drain()
        if last.refused:
            assert shape.restored not in ("", "lake"), f"refused: {last.refused[0]!r}"
            return
        whole = not shape.restored
        check_all(world, project, expired=project.retention is not None, replays=whole)
        if shape.replays and whole:
            self._begin("replay", lambda: replay(world, project))
            world.run()
            check_replayed(Lake(world.root))
            self._drain()
            check_all(world, project, expired=project.retention is not None)
        if shape.upkeep:
            self._drain(upkeep=(3 * HOURS,))
            check_all(world, project, expired=project.retention is not None, replays=whole)
            check_left(project, Lake(world.root))

    def _begin(self, name: str, do: Callable[[], object], *, faulty: bool = False) -> Process:
        process = Process(name)
        if faulty:
            self._endanger(process)
        self._attend(process)
        self._world.begin(process, "main", lambda: self._until_error(process, do))
        return process

    def _until_error(self, process: Process, do: Callable[[], object]) -> None:
        """An error of the medium ends a process where nothing in it knows better."""
        try:
            do()
        except OSError:
            if not process.struck:
                raise
        self._world.kill(process)  # it has ended, and so do its locks

    def _attend(self, process: Process) -> None:
        """Have a process's locks freed when it is killed, and its JVM's a little later."""
        jvm = process.jvm = Process(f"{process.name} jvm")

        def end() -> None:
            self._medium.free(process)
            after = self._draw.choice([0.0, 1.0, 20.0])
            self._world.begin(jvm, "jvm", lambda: self._end_later(jvm, after))

        process.at_end.append(end)

    def _end_later(self, jvm: Process, seconds: float) -> None:
        self._world.sleep(seconds)
        self._medium.free(jvm)

    def _endanger(self, process: Process) -> None:
        """Draw what happens to a process, and when."""
        draw = self._draw
        if draw.random() < 0.8:
            kind = draw.choice([*DEADLY, *DEADLY, "lost", "again"])
            process.writes[draw.randint(1, draw.choice([10, 40, 90]))] = Fault(kind)
        for _ in range(draw.choice([0, 0, 0, 0, 0, 1, 1, 2])):
            kind = draw.choice(["pause", "delay", "delay"])
            process.steps[draw.randint(1, 250)] = Fault(kind, draw.choice([0.02, 0.5, 20.0, 4 * HOURS]))

    def _lives(self) -> None:
        """One run after another: the next begins when the last was killed, has ended, or is paused."""
        for number in range(self._shape.lives):
            name = f"run {number}"
            process = Process(name)
            self._endanger(process)
            self._attend(process)
            running = Running(self._world, self._shape.project, process, self._shape.upkeep)
            self._runs.append(running)
            self._world.begin(process, "main", partial(self._until_error, process, running))
            while self._world.is_running(process) and process.until <= self._world.seconds:
                self._world.sleep(0.5)
            if process.until > self._world.seconds:
                self._refused_meanwhile(process)

    def _refused_meanwhile(self, paused: Process) -> None:
        """No other gets the lease of who is paused."""
        held = [
            path for path, holder in self._medium.holders.items() if holder is paused and path.name == "lease"
        ]
        for path in held:
            if self._medium.holders.get(path) is paused and paused.until > self._world.seconds:
                with suppress(LeaseError):
                    Lease("another", path.parent).release()
                    assert paused.until <= self._world.seconds, f"{path} is held by who is paused"

    def _look(self) -> None:
        for _ in range(WATCHED if self._shape.rebuilds else 0):
            self._world.sleep(0.05)
            View(self._world, self._shape.project).check_generations()
        seen = 0
        for _ in range(self._draw.randint(1, 3)):
            self._world.sleep(self._draw.choice([0.05, 0.2, 0.5, 2.0]))
            view = View(self._world, self._shape.project)
            view.check()
            end = seen if view.end is None else view.end
            assert end >= seen, f"a reader has seen {seen} records in silver, and then {end}"
            seen = end

    def _later(self, do: Callable[[World, Project], None]) -> None:
        self._world.sleep(self._draw.choice([0.1, 0.4, 1.0, 4.0, 20.0]))
        if SILVER not in Lake(self._world.root).places():
            return
        try:
            do(self._world, self._shape.project)
        except HeadwaterError as e:  # somebody is at work, or the medium failed who was asked
            if e.code not in _HELD and "OSError: [Errno" not in str(e):
                raise

    def _take_copy(self) -> None:
        self._world.sleep(self._draw.choice([0.05, 0.2, 0.5, 1.0]))
        if not self._world.root.is_dir():  # who makes the lake has been delayed
            return
        shutil.copytree(self._world.root, self._copy)
        self._world.note("copy", self._world.root)

    def _put_back(self) -> None:
        world, what = self._world, self._shape.restored
        part = "" if what == "lake" else what.replace(".", "/")
        if not (self._copy / part).is_dir():
            return
        world.note("put back", what)
        shutil.rmtree(world.root / part)
        shutil.copytree(self._copy / part, world.root / part)
        if part and self._draw.random() < 0.7:  # it has grown before those look who have read it
            chain = self._shape.project.chain
            self._drain(chain=chain[: chain.index(what) + 1] if what in chain else ())

    def _drain(self, upkeep: tuple[float, ...] = (), chain: tuple[str, ...] | None = None) -> Running:
        """One more run, to which nothing happens; of all, or of some tables."""
        project = self._shape.project
        if chain is not None:
            project = replace(project, chain=chain)
        if self._shape.rebuilds and not upkeep:
            self._begin(
                "rebuild on",
                lambda: rebuild(self._world, project) if SILVER in Lake(self._world.root).places() else None,
            )
        process = Process("last")
        self._attend(process)
        running = Running(self._world, project, process, upkeep)
        self._world.begin(process, "main", partial(self._until_error, process, running))
        self._world.run()
        assert running.is_begun, "all others have ended, and their leases are not free"
        return running


@cache
def _folder() -> Path:
    """Where the lakes of this process lie, until it ends."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="headwater-simulator-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@cache
def _template() -> Path:
    """A lake whose tables are there, and empty."""
    made = _folder() / "template"
    with simulated(World(made, random.Random(0))):
        for name, columns in {**flows.COLUMNS, **flows.BESIDE}.items():
            properties = {"delta.enableChangeDataFeed": "true"} if columns is flows.COUNTS else {}
            Lake(made).create(name, columns, properties=properties)
    return made
