"""The lake as a rebuild sees it: the next generation of what it rebuilds, the live one of all else."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headwater.errors import DamageError, LakeError
from headwater.storage import delta, json_file, lease, log, past, store
from headwater.storage.lake import Lake, Place

_PLAN = "plan.json"  # of a trial


@dataclass(frozen=True)
class Plan:
    """What a rebuild, or a restore, makes; kept beside the lake until it is swapped or aborted.

    Attributes:
        tables: {table → its generation that is built}, tables that a flow writes beside its own among them,
            whether they will be written or not.
        digest: of the project's files that it began with.
        cut: {table → the live version that it is compared with}; None where nothing is compared.
        savepoint: the one that is restored into them; "" where they are rebuilt.
        since: from when on it was asked to read; "" where it was not asked.
        fresh_lookups: whether lookups are asked anew.
        begin: {input → where reading it begins}, of those inputs that are not read from their start.
        proven: {table → the live version after which it is compared}, where that is not all of it.
    """

    tables: dict[str, int]
    digest: str
    cut: dict[str, int] | None = None
    savepoint: str = ""
    since: str = ""
    begin: dict[str, dict[str, int]] = field(default_factory=dict)
    fresh_lookups: bool = False
    proven: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, lake: Lake) -> Plan | None:
        """The rebuild that is under way; None where there is none."""
        try:
            hint = "remove it; headwater rebuild --clean removes what was built, then rebuild again"
            return cls(**json_file.read(_file(lake), hint=hint))
        except FileNotFoundError:
            return None

    def write(self, lake: Lake) -> None:
        """Keep it; after a kill it is there whole, or not at all.

        Raises:
            FileExistsError: another one is under way.
        """
        json_file.write_new(_file(lake), asdict(self), indent=1)

    def forget(self, lake: Lake) -> None:
        """The rebuild is over."""
        store.of(lake.root).delete(_file(lake))

    def check(self, lake: Lake) -> None:
        """Check that it still is the one under way, now that what it builds is held.

        Raises:
            LakeError: another process has ended or aborted it.
        """
        if Plan.read(lake) != self:
            raise LakeError(
                "another process has swapped what was to be built, or aborted it, meanwhile",
                code="SWAPPED_MEANWHILE",
                hint="run the same again if need be",
            )


class Shadow(Lake):
    """A lake in which some tables are those of a rebuild.

    Args:
        live: the lake itself.
        plan: the rebuild.
    """

    def __init__(self, live: Lake, plan: Plan) -> None:
        super().__init__(live.root)
        self.plan = plan

    def places(self) -> dict[str, Place]:
        """Of each table the generation that is built, once it is made, or the live one."""
        live = super().places()
        others = {name: place for name, place in live.items() if name not in self.plan.tables}
        return {**others, **self.built()}

    def built(self) -> dict[str, Place]:
        """The generations that are built, of those tables that are made."""
        places = {name: self._new(name) for name in self.plan.tables}
        begun = {name: place for name, place in places.items() if self._store.exists(place.path / delta.LOG)}
        # A process that was killed as it made a table leaves a log without a commit.
        return {name: place for name, place in begun.items() if log.exists(place.path)}

    def flow_folder(self, flow: str, table: str | None = None) -> Path:
        """The folder of what a flow keeps beside the generation that is built."""
        return self.flow_at(flow, self.plan.tables[table or flow])

    def remove(self, flows: Mapping[str, str]) -> None:
        """Remove what was built.

        Args:
            flows: {flow → the table that it writes}.
        """
        for name, generation in self.plan.tables.items():
            self._store.delete_all(self.at(name, generation))
        for flow, table in flows.items():
            self._store.delete_all(self.flow_at(flow, self.plan.tables[table]))

    def _new(self, name: str, *, anew: bool = False) -> Place:
        generation, known = self.plan.tables[name], super().places().get(name)
        return Place(name, generation, self.at(name, generation), known.id if known else uuid.uuid4().hex)

    def _register(self, place: Place) -> Place:
        """The catalog learns of it when all are swapped."""
        return place


class Trial(Shadow):
    """A lake in which one table is built in a folder apart, `<lake>/_reconcile/<name>`, and never swapped.

    Args:
        live: the lake itself.
        name: of the folder.
        plan: the table, those beside it, and the version to build it up to.
    """

    def __init__(self, live: Lake, name: str, plan: Plan) -> None:
        super().__init__(live, plan)
        self.folder = live.root / "_reconcile" / name

    @classmethod
    def under_way(cls, lake: Lake) -> Iterator[Trial]:
        """Those that processes are at work on."""
        for file in store.of(lake.root).find(lake.root, f"_reconcile/*/{_PLAN}"):
            with suppress(FileNotFoundError):  # it has ended just now
                if lease.holder(file.parent) is not None:
                    yield cls(lake, file.parent.name, Plan(**json_file.read(file, hint="remove it")))

    def tell(self) -> None:
        """Let others know what is compared, as long as this process lives.

        Maintenance that has not heard of it ends first: what is there by then stays.
        """
        json_file.write(self.folder / _PLAN, asdict(self.plan))
        with past.forgetting(self):
            pass

    def at(self, name: str, generation: int) -> Path:
        """Where the table, or one beside it, is built."""
        return self.folder / "tables" / name

    def clear(self) -> None:
        """Remove all that was built."""
        self._store.delete(self._note)
        for part in ("tables", "flows"):
            self._store.delete_all(self.folder / part)

    def keep(self, generation: int, version: int) -> None:
        """Note that what was built is what the live table was at a version of one of its generations."""
        json_file.write(self._note, {"generation": generation, "version": version})

    def kept(self) -> tuple[int, int] | None:
        """Which generation and version what was built is; None where it was not kept."""
        try:
            kept = json_file.read(self._note, hint="")
        except (FileNotFoundError, DamageError):  # it is built anew
            return None
        return kept["generation"], kept["version"]

    def begin(self) -> None:
        """Go on with what was kept: until it is kept again, a kill leaves what nobody knows."""
        self._store.delete(self._note)

    @property
    def _note(self) -> Path:
        return self.folder / "kept.json"

    def flow_at(self, flow: str, generation: int) -> Path:
        return self.folder / "flows" / flow


def generations(lake: Lake, tables: Iterable[str]) -> dict[str, int]:
    """{table → a generation of it that no folder has yet}.

    Of a table that is not live the next one is left to the live flow, which may make it meanwhile.
    """
    found = {}
    for name in tables:
        live = lake.places().get(name)
        newest = live.generation if live else 0
        for folder in store.of(lake.root).find(lake.at(name, 1).parent, "g[0-9]*"):
            newest = max(newest, int(folder.name[1:]))
        found[name] = newest + (1 if live else 2)
    return found


def _file(lake: Lake) -> Path:
    return lake.root / "_rebuild.json"
