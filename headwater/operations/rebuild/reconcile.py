"""Proving that live equals batch: a table computed again from exactly what it has read, and compared.

1. **Cut**: the newest version of the live table says how far each input was read.
2. **Build** the table alone, by the same flow, from the start of its inputs up to there, in a folder apart.
3. **Compare** every row, and those of the tables beside it, with the live table at that version.
4. Remove what was built; where nothing differs, keep that this version is proven.

The live flow goes on meanwhile. After a proof only what came since has to be computed: of a table of rows
that part alone is compared; of any other what was built is kept, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.common.progress import Board
from headwater.errors import FlowError, ProjectError
from headwater.operations.rebuild import proofs
from headwater.operations.rebuild.build import Builder, Progress
from headwater.operations.rebuild.compare import Difference
from headwater.operations.rebuild.cut import Cut
from headwater.operations.rebuild.differences import differences, unprovable
from headwater.operations.rebuild.proofs import Proof
from headwater.operations.rebuild.shadow import Plan, Trial
from headwater.operations.rebuild.versions import choose
from headwater.operations.rebuild.window import Part, Window
from headwater.planner import analysis
from headwater.planner.analysis import Analysed
from headwater.project.load import Project
from headwater.runtime import sessions
from headwater.storage import log
from headwater.storage.lake import Lake, Place
from headwater.storage.lease import Lease
from headwater.storage.names import beside, replay_name
from headwater.storage.ranges import Position


@dataclass(frozen=True)
class Reconciled:
    """What comparing one table came to.

    Attributes:
        table: its name.
        generation, version: what of it was compared.
        since: the version after which rows were compared; None: all were.
        window: which windows were compared; "": all.
        rows: how many rows of its inputs were read.
        seconds: how long computing it took.
        differences: of it, and of the tables beside it.
        notes: what can't be told by comparing.
    """

    table: str
    generation: int
    version: int
    since: int | None
    window: str
    rows: int
    seconds: float
    differences: list[Difference]
    notes: list[str]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not any(self.differences)


def reconcile(
    project: Project,
    names: Sequence[str],
    *,
    since_last: bool = False,
    window: Window | None = None,
    limit: int = 0,
    progress: Progress | None = None,
) -> Iterator[Reconciled]:
    """Compare tables with what their definitions make of what they have read, one after the other.

    Args:
        project: the definitions.
        names: the tables.
        since_last: whether what was added since the last proof is enough, of tables where that can be told.
        window: which windows are enough, of aggregates by windows of time.
        limit: how many rows that differ to show, of each side of each table.
        progress: told how far computing a table is.

    Raises:
        ProjectError: an unknown table, one without a definition to compute it by, nothing is written yet, or
            a part of it can't be computed alone.
        LeaseError: another process compares the table.
        FlowError: computing it failed, or a file of it can't be read.
    """
    lake = Lake(project.conf.lake)
    for name in names:
        _check(project, lake, name)
    spark = sessions.start(project.conf)
    tables = analysis.analyse(spark, project)
    parts = {name: window.of(project.tables[name], tables[name]) for name in names} if window else {}
    for name in names:
        trial = Trial(lake, f"{name}.window" if window else name, _plan(project, lake, name, since_last))
        held = Lease(name, trial.folder)
        trial.tell()
        try:
            comparing = _Reconciling(project, lake, trial, name, tables, parts.get(name), progress)
            yield comparing(since_last, limit)
        finally:
            if trial.kept() is None:
                trial.clear()
            held.release()


def _check(project: Project, lake: Lake, name: str) -> None:
    if name in project.alerts:
        raise ProjectError(
            f"{name} is an alert: what was sent in real time is kept nowhere to compare with",
            code="NOT_A_TABLE",
            table=name,
        )
    project.definition(name)
    if name in project.topics:
        raise ProjectError(
            f"{name} is the history that others are computed from",
            code="TABLE_IS_HISTORY",
            table=name,
            hint="name a table below it",
        )
    lake.place(name)


def _plan(project: Project, lake: Lake, name: str, since_last: bool) -> Plan:
    proof = proofs.read(lake.flow_folder(name)) if since_last else None
    proven = {name: proof.version} if proof and proof.generation == lake.place(name).generation else {}
    built = dict.fromkeys((name, *beside(name)), 1)
    return Plan(built, project.digest, choose(project, lake, [name]), proven=proven)


class _Reconciling:
    """One table, computed again."""

    def __init__(
        self,
        project: Project,
        lake: Lake,
        trial: Trial,
        name: str,
        tables: dict[str, Analysed],
        part: Part | None,
        progress: Progress | None,
    ) -> None:
        self._project, self._lake, self._trial, self._name = project, lake, trial, name
        self._table, self._analysed = project.tables[name], tables[name]
        self._places = self._all_places()
        self._part = part
        self._cut = Cut(project, lake, trial, trial.plan.cut or {}, part.wants if part else None)
        self._builder = Builder(project, trial, [name], Board(), progress, tables, lake)
        self._of_rows = self._analysed.appended and self._analysed.kind == "rows"

    def __call__(self, since_last: bool, limit: int) -> Reconciled:
        name, version = self._name, self._cut.versions[self._name]
        notes = unprovable(self._project, self._lake, [name], self._builder.context.tables, self._cut)
        proof = proofs.read(self._lake.flow_folder(name)) if since_last else None
        if since_last:
            why = self._why_all(proof, version)
            if why:
                notes.append(f"{name} was computed as a whole: {why}")
                proof = None
        keeping = since_last or self._trial.kept() is not None
        self._trial.begin()
        if proof is None or self._of_rows:
            self._trial.clear()
        if proof is not None and self._of_rows:
            self._builder.begin(name, self._read(proof.version))
        seconds = self._builder(self._cut)
        if self._part is not None:  # what lies after the last file that matters
            self._builder.pass_over(name, self._read(version))
        self._check_places()
        found = differences(
            self._project,
            self._lake,
            self._trial,
            [name],
            self._cut,
            limit=limit,
            after=proof.version if proof and self._of_rows else 0,
            where=self._part.where() if self._part else "",
        )
        place = self._places[name]
        if version and not any(found) and self._part is None:
            rows = found[0].before + (proof.rows if proof and self._of_rows else 0)
            folder = self._lake.flow_folder(name)
            proofs.write(folder, place.generation, version, rows, self._analysed.fingerprint)
            if keeping and not self._of_rows and self._analysed.kind != "view":
                self._trial.keep(place.generation, version)
        return Reconciled(
            name,
            place.generation,
            version,
            proof.version if proof else None,
            self._part.window.text if self._part else "",
            self._builder.rows(),
            seconds,
            found,
            notes,
        )

    def _all_places(self) -> dict[str, Place]:
        """Where the table and what it reads lie."""
        live = self._lake.places()
        return {each: live[each] for each in (self._name, *self._table.sources) if each in live}

    def _check_places(self) -> None:
        """Check that these are the generations that were live when it began.

        Raises:
            FlowError: they are not.
        """
        if self._all_places() != self._places:
            raise FlowError(
                f"{self._name}, or what it reads, was swapped meanwhile",
                code="SWAPPED_MEANWHILE",
                table=self._name,
                hint="run the same again",
            )

    def _why_all(self, proof: Proof | None, version: int) -> str:
        """Why the part after a proof is not enough; "" where it is."""
        if proof is None or proof.generation != self._places[self._name].generation:
            return "it was not proven before"
        if proof.fingerprint != self._analysed.fingerprint:
            return "its definition has changed since its last proof"
        if self._analysed.kind == "view":
            return "it is a view"
        if self._of_rows:
            return self._why_all_rows(proof, version)
        if self._trial.kept() != (proof.generation, proof.version):
            return "what was computed for its last proof was not kept"
        if self._is_forgotten(self._trial.place(self._name).path):
            return "versions since its last proof are gone from the log of one that it reads"
        return ""

    def _why_all_rows(self, proof: Proof, version: int) -> str:
        """The same, of a table of rows."""
        path = self._places[self._name].path
        if self._analysed.gate is not None and self._analysed.gate.keyed:
            return "its suite compares rows with all that are there"
        gone = "versions since its last proof are gone from its log, or from one that it reads"
        if log.first(path) > proof.version or self._is_forgotten(path, proof.version):
            return gone
        before, now = (log.read(path, each).flows for each in (proof.version, version))
        if any(self._began_later(other, before) for other in beside(self._name)):
            return gone
        if log.last(before, replay_name(self._name)) != log.last(now, replay_name(self._name)):
            return "records of its quarantine were replayed since its last proof"
        return ""

    def _is_forgotten(self, path: Path, version: int | None = None) -> bool:
        """Whether commits after what a version of a table, the newest by default, has read are gone."""
        flows = log.flows(path) if version is None else log.read(path, version).flows
        for source, at in (each for flow in flows.values() for each in flow["consumed"].items()):
            if source in self._places:
                read = Position.parse(at)
                upto = read.version if read.snapshot is None else read.snapshot
                if log.first(self._places[source].path) > upto + 1:
                    return True
        return False

    def _began_later(self, other: str, flows: Mapping[str, Any]) -> bool:
        """Whether the log of a table beside it begins after what its flow had written by a version of it."""
        place = self._lake.places().get(other)
        first = log.first(place.path) if place else 0
        if place is None or first == 0:
            return False
        return log.is_past(log.read(place.path, first), flows)

    def _read(self, version: int) -> dict[str, dict[str, Any]]:
        """{flow that computes the table → input → how far it had been read by a version of the live one}."""
        flows = log.read(self._places[self._name].path, version).flows
        own = [flow.name for flow in self._table.flows or (self._table,)]  # a replay's is none of them
        return {flow: flows[flow]["consumed"] for flow in own if flow in flows}
