"""What the processes of a schedule do: the same as `headwater run`, `rebuild` and `quarantine replay`."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headwater.errors import HeadwaterError, LeaseError
from headwater.flows.context import Moved
from headwater.operations.rebuild import _swap, held, is_swapped
from headwater.operations.rebuild.shadow import Plan, Shadow, generations
from headwater.operations.replay import resolve
from headwater.run.leases import Leases
from headwater.run.maintenance import Upkeep
from headwater.storage.lake import Lake
from headwater.storage.names import beside

from .flows import BRONZE, SILVER, Project, context_of, flow_of
from .world import Process, World

TRIES = 8  # of who waits for a lease
AGAIN = 4  # times that a flow is begun again after an error that may pass
PAUSE = 5.0  # seconds between two tries, or two rounds of maintenance that find nothing to do


class Running:
    """`headwater run --once`: each flow a task, and one that waits for them and writes checkpoints.

    Args:
        world: where it runs.
        project: the definitions.
        process: whose tasks they are.
        upkeep: after how many seconds maintenance comes, each time.

    Attributes:
        refused: what flows have stopped with.
        is_begun: whether the leases were free.
        is_whole: whether all was drained, and nothing happened to it.
    """

    def __init__(
        self, world: World, project: Project, process: Process, upkeep: tuple[float, ...] = ()
    ) -> None:
        self.world, self.project, self.process = world, project, process
        self.refused: list[Exception] = []
        self.is_begun = self.is_whole = False
        self._upkeep = upkeep
        self._lake = Lake(world.root)
        self._leases = Leases(self._lake, self._stops)
        self._flows: dict[str, Any] = {}
        self._said = io.StringIO()

    def __call__(self) -> None:
        for _ in range(TRIES):
            if self._begun():
                break
            self.world.sleep(PAUSE)
        else:
            return
        self.is_begun = True
        context = context_of(self.world, self.project, self._lake, said=self._said)
        tasks = [
            self.world.begin(self.process, name, lambda name=name: self._until_done(context, name))  # type: ignore[misc]
            for name in self.project.names()
        ]
        if self._upkeep:
            tasks.append(self.world.begin(self.process, "upkeep", lambda: self._maintain(context)))
        while not all(task.is_done for task in tasks):
            self._passing(self._keep_house)
            self.world.sleep(0.2)
        self._leases.release()
        self.is_whole = not self.refused and not self.process.struck

    def _stops(self, after: float) -> bool:
        self.world.sleep(after)
        return False

    def _begun(self) -> bool:
        try:
            self._leases.take(self.project.names())
        except LeaseError:
            return False
        return True

    def _until_done(self, context: Any, name: str) -> None:
        """As the supervisor has it: another generation is followed, what may pass is tried again."""
        for left in reversed(range(AGAIN)):
            try:
                self._leases.follow(name)
                flow = flow_of(context, name)
                if not self._leases.holds(name):
                    raise Moved(name)
                self._flows[name] = flow
                flow.run()
                break
            except Moved:
                continue
            except OSError as e:
                if not left:
                    self.refused.append(e)
                self.world.sleep(PAUSE)
            except HeadwaterError as e:
                self.refused.append(e)
                break
        context.heads.end(name)

    def _keep_house(self) -> None:
        for flow in list(self._flows.values()):
            flow.committer.checkpoint(self.project.checkpoint)

    def _maintain(self, context: Any) -> None:
        upkeep = Upkeep(context, self._flows)
        for seconds in self._upkeep:
            self.world.sleep(seconds)
            upkeep.step()
            amiss = [line for line in self._said.getvalue().splitlines() if "could not be maintained" in line]
            amiss = [line for line in amiss if "has another generation now" not in line]
            assert not amiss or self.process.struck, amiss[0]

    def _passing(self, do: Callable[[], None]) -> None:
        with suppress(OSError):
            do()


class _Builder:
    """What is built beside the live tables, in one pass after another."""

    def __init__(self, world: World, project: Project, shadow: Shadow) -> None:
        self.names = list(project.chain)
        self.context = context_of(world, project, shadow, ended=(BRONZE,))

    def __call__(self, _: object) -> float:
        self.context.heads.begin(self.names)
        for name in self.names:
            flow_of(self.context, name).run()
            self.context.heads.end(name)
        return 0.0


def rebuild(world: World, project: Project) -> None:
    """`headwater rebuild` of all that is derived; where one was killed it goes on."""
    lake = Lake(world.root)
    lake.finish()
    plan = Plan.read(lake)
    if plan is not None and is_swapped(lake, plan):
        plan.forget(lake)
        plan = None
    if plan is None:
        every = [each for name in project.chain for each in (name, *beside(name))]
        plan = Plan(generations(lake, every), project.digest)
        plan.write(lake)
    shadow = Shadow(lake, plan)
    with held(shadow, project.chain):
        builder = _Builder(world, project, shadow)
        builder(None)
        _swap(project, lake, shadow, plan, builder)  # type: ignore[arg-type]
        plan.forget(lake)
        world.note("rebuilt", world.root)


def replay(world: World, project: Project) -> None:
    """`headwater quarantine replay`: by the process that writes the table, or by itself."""
    done = resolve(project, SILVER, "replay")  # type: ignore[arg-type]
    if done.replayed:
        world.note("replayed", world.root)
