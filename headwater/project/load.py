"""Loading a project: every file of its layers, by path, into one checked set of definitions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from headwater.common import near
from headwater.errors import ProjectError
from headwater.errors.several import Collected
from headwater.project import checks, environment, imports, lookups, modules, naming, outside, pipelines, sql
from headwater.project.carried import carried
from headwater.project.cdc.tables import divided
from headwater.project.conf import Conf
from headwater.project.definitions import (
    Alert,
    Declaration,
    Files,
    Lookup,
    Sink,
    StoreSink,
    Table,
    Topic,
    View,
)
from headwater.project.naming import FINAL
from headwater.project.paths import LAYERS, definition_files
from headwater.project.reference import Clock, Reference, find_references
from headwater.project.streams import followed
from headwater.project.suite import Suite, joined, of_whole_table
from headwater.project.suite import read as read_suite
from headwater.project.views import expanded, with_snapshots
from headwater.storage.file_system import refuse_remote

FINAL_TRIGGER = "2s"  # of such: windows wait for their delay anyhow, and the corrected table shall be fresh


@dataclass(frozen=True)
class Project:
    """A project's definitions, by name, each table after what it reads."""

    root: Path
    env: str
    conf: Conf
    topics: dict[str, Topic]
    tables: dict[str, Table]
    alerts: dict[str, Alert]
    sinks: dict[str, Sink]
    references: dict[str, Reference]
    suites: dict[str, Suite] = field(default_factory=dict)
    digest: str = ""  # of all files of its layers and suites, and of its own modules that they import
    files: dict[str, Files] = field(default_factory=dict)
    lookups: dict[str, Lookup] = field(default_factory=dict)
    off: dict[str, Sink] = field(default_factory=dict)  # whose connection is off in this environment

    @property
    def raw(self) -> dict[str, Topic | Files]:
        """The bronze tables, whose rows come from outside the lake as they are."""
        return {**self.topics, **self.files}

    def names(self) -> list[str]:
        """The names of all tables that flows feed, each after what it reads."""
        return [*self.raw, *self.tables]

    def streams(self, table: Table) -> tuple[str, ...]:
        """The tables that a table, or a flow into one, follows; see `headwater.project.streams.followed`."""
        flows = table.flows or (table,)
        return tuple(dict.fromkeys(name for flow in flows for name in followed(flow, self.references)))

    def definition(self, name: str) -> Topic | Files | Table:
        """The definition of the table `name`.

        Raises:
            ProjectError: there is none.
        """
        found = self.raw.get(name) or self.tables.get(name)
        if found is None:
            raise ProjectError(
                f"unknown table '{name}'",
                code="UNKNOWN_TABLE",
                table=name,
                hint=near.hint(name, self.names()),
            )
        return found

    def above(self, names: list[str]) -> list[str]:
        """The tables `names` and all they depend on; all tables when `names` is empty."""
        wanted = dict.fromkeys(names)
        todo = list(wanted)
        while todo:
            found = self.definition(todo.pop())
            for source in found.sources if isinstance(found, Table) else ():
                if source not in wanted and source not in self.references:
                    wanted[source] = None
                    todo.append(source)
        return [name for name in self.names() if not names or name in wanted]

    def below(self, names: list[str]) -> list[str]:
        """The tables `names` and all that is derived from them, each after what it reads."""
        found = set(names)
        for name, table in self.tables.items():
            if found & set(table.sources):
                found.add(name)
        return [name for name in self.names() if name in found]


def load_project(root: Path | None, env: str = "local") -> Project:
    """The project that holds the folder `root` (default: the current one), its graph checked.

    Raises:
        ProjectError, ConfError: one line with file, table and fix; of several errors, `SeveralErrors`.
    """
    root, conf = environment.enter(root, env)
    refuse_remote(conf.lake, root / "conf" / f"{env}.yaml")
    wrong, declared, unread = Collected(), list[Declaration](), set[str]()
    with pipelines.loading(conf.spark) as spark:
        for layer in LAYERS:
            for path in definition_files(root / layer):
                with wrong.each(partial(unread.add, layer)):
                    declared += list(_declarations(path, layer, spark))
    declared = pipelines.with_topics(declared)
    modules.ship(root)
    references = {reference.name: reference for reference in [*find_references(root), Clock()]}
    check = checks.Checks(wrong, unread)
    check.names(declared)
    declared = naming.resolved(declared, references, wrong)
    views = {d.name: d for d in declared if isinstance(d, View)}
    tables = {}
    for table in (d for d in declared if isinstance(d, Table)):
        with wrong.each():
            tables[table.name] = with_snapshots(expanded(table, views, references), references)
    topics = {d.name: d for d in declared if isinstance(d, Topic)}
    files = {d.name: d for d in declared if isinstance(d, Files)}
    alerts = {d.name: d for d in declared if isinstance(d, Alert)}
    sinks = {d.name: d for d in declared if isinstance(d, Sink)}
    tables = _fed(divided(tables, {**topics, **files}, wrong), wrong)
    finals = _finals(tables, sinks)
    tables = carried(tables | finals)
    sinks = {name: _of_finals(sink, finals) for name, sink in sinks.items()}
    order = check.graph({**topics, **files}, tables, alerts, sinks, references, views)
    known = {"postgres": list(conf.postgres), "opensearch": list(conf.opensearch)}
    outside.connections(wrong, sinks, known, root / "conf" / f"{env}.yaml")
    asked = {d.name: d for d in declared if isinstance(d, Lookup)}
    lookups.check(wrong, asked, tables, known["postgres"], root / "conf" / f"{env}.yaml")
    outside.clusters(wrong, topics, conf, root / "conf" / f"{env}.yaml")
    outside.buckets(wrong, files, list(conf.s3), root / "conf" / f"{env}.yaml")
    off = {name: sink for name, sink in sinks.items() if _is_off(sink, conf)}
    sinks = {name: sink for name, sink in sinks.items() if name not in off}
    suites: dict[str, Suite] = {}
    for path in sorted((root / "quality").glob("*.json")):
        with wrong.each():
            suite = read_suite(path)
            suites[suite.table] = suite
    check.suites(suites, [*topics, *files, *tables])
    check.maintained(conf, [*topics, *files, *tables], tables, root / "conf" / f"{env}.yaml")
    for table in tables.values():
        if table.expectations:
            with wrong.each():
                suites[table.name] = joined(suites.get(table.name), table)
    for name in [*topics, *files]:
        if name in suites:
            with wrong.each():
                suites[name] = of_whole_table(suites[name])
    wrong.check()
    ordered = {name: tables[name] for name in order}
    digest = _digest(root)
    return Project(
        root, env, conf, topics, ordered, alerts, sinks, references, suites, digest, files, asked, off
    )


def _digest(root: Path) -> str:
    """Of the files that say definitions and suites, and of the project's modules that these import."""
    found = hashlib.sha256()
    every = [path for folder in (*LAYERS, "quality") for path in sorted((root / folder).rglob("*"))]
    for path in (path for path in every if path.suffix in (".py", ".sql", ".json")):
        found.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    for name, path in sorted(imports.of(path for path in every if path.suffix == ".py").items()):
        found.update(f"{name}\0".encode() + path.read_bytes())
    return found.hexdigest()


# The words of `headwater` that return a definition, which is called as the variable is.
_NAMED = (
    *("topic", "files", "auto_cdc", "auto_cdc_from_snapshot", "lookup"),
    *("kafka_sink", "postgres_sink", "opensearch_sink", "sink"),
)


def _declarations(path: Path, layer: str, spark: pipelines.Session) -> Iterator[Declaration]:
    if path.suffix == ".sql":
        yield from _with_sinks(sql.parse(path, layer))
        return
    seen: set[int] = set()
    with pipelines.collected() as said:
        module = modules.load(path, {"spark": spark})
    lines = modules.lines(path, _NAMED)
    yield from _with_sinks(pipelines.declarations(said.outputs(), path, layer))
    for variable, value in vars(module).items():
        if not isinstance(value, Declaration) or id(value) in seen:
            continue
        seen.add(id(value))
        value = replace(value, file=path, line=lines.get(variable, 0))
        if isinstance(value, Sink):
            yield _named(value)
        else:
            doc = value.comment or (module.__doc__ or "").strip()
            yield replace(value, name=f"{layer}.{variable}", comment=doc)


def _with_sinks(declared: Iterable[Declaration]) -> Iterator[Declaration]:
    """What says its own name, and the sinks that its properties are."""
    for one in declared:
        yield one
        if isinstance(one, Table):
            yield from (_named(replace(sink, file=one.file, line=one.line)) for sink in one.sinks)


def _fed(tables: dict[str, Table], wrong: Collected) -> dict[str, Table]:
    """The tables, those that several flows feed with these.

    What is wrong is collected: a flow into a table that is none of these, and such a table without flows.
    """
    flows = [table for table in tables.values() if table.into]
    found = {name: table for name, table in tables.items() if not table.into}
    for flow in flows:
        target = found.get(flow.into or "")
        if target is None or target.declared:
            error = ProjectError(
                f"{flow.where} inserts into {flow.into}, which is no table for flows",
                code="FLOW_WITHOUT_TABLE",
                table=flow.into,
                file=flow.file,
                hint=f"declare it: CREATE STREAMING TABLE {flow.into}",
            )
            wrong.add(error)
            continue
        own = replace(flow, limits=target.limits, keys=target.keys)
        sources = tuple(dict.fromkeys([*target.sources, *flow.sources]))
        found[target.name] = replace(target, flows=(*target.flows, own), sources=sources)
    for table in found.values():
        if not table.declared and not table.flows:
            error = ProjectError(
                f"{table.where} is fed by nothing",
                code="TABLE_NOT_FED",
                where=table.where,
                hint=f"write AS SELECT …, or CREATE FLOW … AS INSERT INTO {table.name} BY NAME SELECT …",
            )
            wrong.add(error)
    return found


def _finals(tables: dict[str, Table], sinks: dict[str, Sink]) -> dict[str, Table]:
    """The tables `<name>_final` that are read or published, of tables that are corrected as rows come."""
    read = {source for table in tables.values() for source in table.sources}
    read |= {f"{sink.table}{FINAL}" for sink in sinks.values() if sink.on == "final"}
    found = {}
    for name, table in tables.items():
        final = f"{name}{FINAL}"
        corrected = table.emit == "update" and not table.view and table.process is None
        if final in read and final not in tables and corrected:
            comment = f"The windows of {name} that are over, each as it was then"
            plain = replace(
                table,
                name=final,
                emit="final",
                comment=comment,
                allowed_lateness=None,
                sinks=(),
                expectations=(),
            )
            limits = replace(table.limits, trigger=table.limits.trigger or FINAL_TRIGGER)
            found[final] = replace(plain, limits=limits)
    return found


def _is_off(sink: Sink, conf: Conf) -> bool:
    return isinstance(sink, StoreSink) and getattr(conf, sink.store).get(sink.connection) is False


def _of_finals(sink: Sink, finals: dict[str, Table]) -> Sink:
    """The sink of final windows reads the table that keeps them."""
    final = f"{sink.table}{FINAL}"
    return replace(sink, table=final) if sink.on == "final" and final in finals else sink


def _named(sink: Sink) -> Sink:
    return replace(sink, name=f"{sink.table}->{sink.target.removeprefix('kafka:')}")
