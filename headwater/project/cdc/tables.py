"""A table that AUTO CDC feeds becomes two: its changes, which are appended, and the view of what follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from headwater.errors import ProjectError, Where
from headwater.errors.several import Collected
from headwater.project import carried
from headwater.project.cdc.rows import Changes, History, Latest, Unwrapped
from headwater.project.cdc.said import CHANGES, DELETED, SEQUENCE, START, TOMBSTONE, TRUNCATED, Cdc
from headwater.project.definitions import Debezium, Files, Function, Limits, Table, Topic
from headwater.project.rule import Action, Rule, expected, unless

_DELETED = "_op = 'd'"  # of an event of Debezium's
SEQUENCED = "sequenced"  # the rule of a change that says of which row it is, and when


def divided(
    tables: Mapping[str, Table], raw: Mapping[str, Topic | Files], wrong: Collected
) -> dict[str, Table]:
    """The tables, of those that AUTO CDC feeds each with its changes.

    What is wrong is collected: flows into one table that do not agree, a name that is taken.

    Args:
        tables: as they are declared, by their names.
        raw: those of bronze.
        wrong: takes what is wrong.
    """
    fed = _by_target(tables)  # of one that is fed wrongly nothing else is said
    found = {
        name: table
        for name, table in tables.items()
        if table.cdc is None and name not in fed and table.into not in fed
    }
    for table in found.values():
        if isinstance(table.decode, Debezium):
            with wrong.each():
                raise ProjectError(
                    f"{table.where} decodes Debezium's events, and is no table of changes",
                    code="PROPERTY_INVALID",
                    where=table.where,
                    hint="write FLOW AUTO CDC FROM STREAM …, or hw.auto_cdc(…)",
                )
    for name, flows in fed.items():
        with wrong.each():
            found |= _two(name, flows, tables, raw)
    return found


def _by_target(tables: Mapping[str, Table]) -> dict[str, list[Table]]:
    found: dict[str, list[Table]] = {}
    for table in tables.values():
        if table.cdc is not None:
            target = table.into or table.name
            own = replace(table, into=None) if target == table.name else table
            found.setdefault(target, []).append(own)
    return found


def _two(
    name: str, flows: Sequence[Table], tables: Mapping[str, Table], raw: Mapping[str, Topic | Files]
) -> dict[str, Table]:
    """The table of the changes, the flows into it, and the view of them."""
    first, target = flows[0], tables.get(name)
    cdc = first.cdc
    assert cdc is not None
    if target is None or target.view or (target.declared and name != first.name):
        raise ProjectError(
            f"{first.where}: AUTO CDC INTO {name}, which is no table for flows",
            code="FLOW_WITHOUT_TABLE",
            table=name,
            file=first.file,
            hint=f"declare it: CREATE STREAMING TABLE {name}",
        )
    _agree(name, flows, tables, raw)
    changes = f"{name}{CHANGES}"
    if changes in tables:
        raise ProjectError(
            f"{tables[changes].where} has the name of the changes that {name} follows from",
            code="NAME_TWICE",
            where=tables[changes].where,
            hint="rename it",
        )
    of_changes = _changes(first)
    found: dict[str, Table] = {}
    if target.cdc is None:  # it is declared by itself, and fed by flows
        of_changes = Table(sources=())
        found |= {flow.name: replace(_changes(flow), into=changes) for flow in flows}
    found[changes] = replace(
        of_changes,
        name=changes,
        file=target.file,
        comment=f"The changes that {name} follows from, as they came",
        limits=target.limits,
        properties=target.properties,
        expectations=(*(_of_values(rule, cdc) for rule in target.expectations), _rule(flows)),
    )
    start = (START,) if cdc.scd == 2 else ()
    found[name] = replace(
        target,
        sources=(changes,),
        reads=(changes,),
        views=(),
        decode=None,
        function=(History if cdc.scd == 2 else Latest)(cdc, _where(first)),
        sql=None,
        view=True,
        keys=(*cdc.keys, *start),
        event_time=None,
        delay=None,
        expectations=(),
        cdc=cdc,
    )
    return found


def _of_values(rule: Rule, cdc: Cdc) -> Rule:
    """A rule of a table's rows, for the changes that say what a row is."""
    rule = unless(rule, DELETED)
    return rule if cdc.truncates is None else unless(rule, TRUNCATED)


def _where(flow: Table) -> Where:
    """The line that says how a table follows from changes."""
    assert flow.cdc is not None
    return Where.of(flow.file, flow.name, flow.cdc.line or flow.line)


def _changes(flow: Table) -> Table:
    """A flow of changes, as they came."""
    cdc = flow.cdc
    assert cdc is not None
    changes: Function = Changes(cdc, _where(flow))
    if isinstance(flow.decode, Debezium):
        cdc = cdc if cdc.deletes else replace(cdc, deletes=_DELETED)
        changes = Unwrapped(Changes(cdc, _where(flow)))
    elif flow.decode is not None and flow.decode.tombstones and cdc.deletes is None:
        changes = Changes(replace(cdc, deletes=TOMBSTONE), _where(flow))
    return replace(
        flow,
        sql=None,
        function=changes,
        keys=(),
        cluster_by=(),
        sinks=(),
        refresh="auto",
        carries=carried.COLUMNS if flow.decode else (),
    )


def _rule(flows: Sequence[Table]) -> Rule:
    """That a change says of which row it is, and when: without that it is in no order, and nothing follows
    from it. Where all come from raw records they are quarantined."""
    first, cdc = flows[0], flows[0].cdc
    assert cdc is not None
    told = " AND ".join(f"`{key}` IS NOT NULL" for key in cdc.keys)
    if cdc.truncates is not None:
        told = f"({TRUNCATED} OR ({told}))"
    action: Action = "quarantine" if all(flow.decode for flow in flows) else "warn"
    return expected(SEQUENCED, f"{SEQUENCE} IS NOT NULL AND {told}", action, _where(first))


def _agree(
    name: str, flows: Sequence[Table], tables: Mapping[str, Table], raw: Mapping[str, Topic | Files]
) -> None:
    """The flows into one table say the same of its rows, and there are no others."""
    others = [table for table in tables.values() if table.into == name and table.cdc is None]
    first = flows[0]
    if len(flows) > 1 and first.cdc is not None and first.cdc.snapshots:
        raise ProjectError(
            f"{flows[1].where} feeds {name} as {first.name} does, and what one delivers the other lacks",
            code="FLOWS_DIFFER",
            where=flows[1].where,
            hint="unite what they deliver in one table, and read that",
        )
    for one, other in combinations((flow for flow in flows if flow.decode is not None), 2):
        both = [raw[flow.sources[0]].topic for flow in (one, other) if flow.sources[0] in raw]
        if len(both) == 2 and both[0] == both[1]:  # a record of it would be open for both
            raise ProjectError(
                f"{other.where} decodes records of {both[0]} into {name} as {one.name} does",
                code="FLOWS_DIFFER",
                where=other.where,
                hint="decode it once, with the fields of both",
            )
    for flow in (each for each in flows if each.into and (each.limits != Limits() or each.cluster_by)):
        raise ProjectError(
            f"{flow.where} says limits or cluster_by of {name}, which is declared by itself",
            code="PROPERTY_INVALID",
            where=flow.where,
            hint="say them where the table is declared",
        )
    for flow in [*flows[1:], *others]:
        if flow.cdc is None or _of_rows(flow.cdc) != _of_rows(first.cdc):
            how = "and is no AUTO CDC" if flow.cdc is None else "by other keys, ignored columns or history"
            raise ProjectError(
                f"{flow.where} feeds {name} as {first.name} does, {how}",
                code="FLOWS_DIFFER",
                where=flow.where,
                hint="say the same of one table in all its flows",
            )


def _of_rows(cdc: Cdc | None) -> object:
    """What a table's rows follow by from its changes."""
    assert cdc is not None
    return cdc.keys, cdc.scd, cdc.truncates is None, cdc.ignored, cdc.tracked, cdc.snapshots
