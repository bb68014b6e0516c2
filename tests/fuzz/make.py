"""A random case, from its seed alone: definitions, records, and what is done in which order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from fuzz.values import COLUMNS, MALFORMED, drawn
from fuzz.words import PAIR, Table, topic

Case = dict[str, Any]

WHERE = [
    "n > 0",
    "ok",
    "NOT ok",
    "x > 1",
    "x <> 0",
    "f < 0",
    "k <> 'a'",
    "s IS NOT NULL",
    "d >= 0",
    "w < 1",
    "i % 2 = 0",
    "dy > DATE '2026-01-01'",
    "coalesce(x, 0) = 0",
]
_SUMS = ["n", "i", "t", "x", "f", "d", "w", "CAST(n AS DECIMAL(38,0))", "x * 2", "coalesce(i, 1)"]
_MEANS = ["x", "f", "n", "i", "t"]
_FLOATING = ("x", "f", "x * 2")
HOUR = 3600
_CLOCK = (-HOUR, -60, 60, HOUR, 3 * HOUR, 48 * HOUR)  # seconds
_DERIVED = ("changed", "distinct", "ranked", "having", "joined", "counted", "nested", "changes", "met")
_DERIVED += ("best", "extremes")
_STEPS = ["step", "some", "crash", "maintain", "restart", "rebuild", "reconcile", "check"]


def case(seed: int) -> Case:
    """The case of a seed."""
    draw = random.Random(seed)
    tables = _tables(draw)
    topics = [table["source"].split(".")[1] for table in tables if table["kind"] == "decoded"]
    partitions, nasty = draw.randint(1, 4), draw.choice((0.0, 0.02, 0.1))
    spread, bad = draw.choice((0.0, 20.0, 200.0)), draw.choice((0.0, 0.05, 0.2))
    if any(rule.get("keyed") == "unique" for table in tables for rule in table.get("rules", ())):
        partitions = 1  # which of the rows of two is the first follows from cuts
    moves = draw.random() < 0.4
    for table in tables:
        if moves and (table.get("final") or table["kind"] in ("process", "waited")):
            table["idle"] = "1000 days"  # the clock alone shall close no window
    keys = {topic(table): table["tombstones"] for table in tables if table.get("tombstones")}
    names, steps, second = [table["name"] for table in tables], list[dict[str, Any]](), 0.0
    for _ in range(draw.randint(2, 5)):
        if moves:
            steps.append({"do": "clock", "seconds": draw.choice(_CLOCK)})
        for of in draw.sample(topics, draw.randint(1, len(topics))):
            records = []
            if draw.random() < 0.1:
                second += draw.choice((-2, -0.5, 0.5, 2)) * HOUR
            for _ in range(draw.choice((1, 4, 10, 20))):
                second += draw.choice((0.0, 1.0, 5.0))
                part = draw.randrange(partitions)
                if draw.random() < bad:
                    value = draw.choice(MALFORMED)
                    records.append({"part": part, "bad": None if value is None else value.decode("latin-1")})
                    continue
                records.append({"part": part, "row": drawn(draw, nasty, second - part * spread / 4, spread)})
                if of in keys:
                    _date(draw, records, keys[of], second)
                if draw.random() < 0.05:
                    records.append(records[-1])
            steps.append({"do": "send", "topic": of, "records": records})
        steps += [_step(draw, names) for _ in range(draw.randint(0, 2))]
    if mended := [table["name"] for table in tables if _may_be_mended(table, tables)]:
        step = {"do": "mend", "table": draw.choice(mended), "after": draw.choice((None, draw.randint(1, 8)))}
        steps.insert(draw.randint(1, len(steps)), step)
    for _ in range(draw.randint(1, 3) if draw.random() < 0.1 else 0):
        steps.insert(draw.randint(0, len(steps)), _kill(draw))
    made = {
        "seed": seed,
        "partitions": partitions,
        "many": draw.random() < 0.12,
        "tables": tables,
        "steps": steps,
        "touched": draw.random() < 0.8,  # views are kept by what changes touch, however few rows there are
        "held": draw.random() < 0.6,  # of many rows as much passes through this process as can
    }
    once = random.Random(f"once {seed}")
    return _with_once(once, made) if once.random() < 0.15 else made


def _with_once(draw: random.Random, case: Case) -> Case:
    """The same with a table that reads once what its topic has; where more comes later it is not rebuilt."""
    table = {**_compacted(draw, "gold.o", "bronze.o"), "once": True}
    first, *later = ([*_changes(draw, table["key"], case["partitions"])] for _ in range(draw.randint(1, 3)))
    steps = [*case["steps"]]
    for records in later:
        send = {"do": "send", "topic": "o", "records": records, "after": True}
        steps.insert(draw.randint(0, len(steps)), send)
    for _ in range(draw.randint(1, 3)):
        steps.insert(draw.randint(0, len(steps)), _step(draw, ["gold.o"]))
    if later:
        steps = [step for step in steps if (step["do"], step.get("table")) != ("rebuild", "gold.o")]
    return {**case, "tables": [*case["tables"], table], "steps": steps, "once": {"o": first}}


def _changes(draw: random.Random, key: str, partitions: int) -> Iterator[dict[str, Any]]:
    """Records of a topic of changes."""
    for second in range(draw.choice((1, 5, 20))):
        records = [{"part": draw.randrange(partitions), "row": drawn(draw, 0.05, second, 5.0)}]
        _date(draw, records, key, second)
        yield from records
    if draw.random() < 0.3:
        yield {"part": 0, "bad": draw.choice([each for each in MALFORMED if each]).decode("latin-1")}


def _date(draw: random.Random, records: list[dict[str, Any]], key: str, second: float) -> None:
    """Give the last of the records Kafka's time of it, and perhaps have a tombstone follow it: of a key as
    rows have it, or of one that is none."""
    records[-1]["sent"] = second + draw.choice((-30, -1, 0, 0, 0.25))
    if draw.random() < 0.3:
        part, sent = records[-1]["part"], second + draw.choice((-1, 0, 0.5))
        of = draw.choice({"k": ("a", "b", ""), "j": (0, 1)}[key])
        tomb: dict[str, Any] = {"part": part, "sent": sent, "tomb": {key: of}}
        if key == "j" and draw.random() < 0.2:
            tomb = {"part": part, "sent": sent, "bad": None, "key": draw.choice(("", "one", "1.5", "[1]"))}
        records.append(tomb)


def _may_be_mended(table: Table, tables: list[Table]) -> bool:
    """Whether its quarantine may be replayed without its rules: they lose no row, and no table takes rows for
    late, as those that are replayed may be."""
    held = [rule["action"] for rule in table.get("rules", ()) if rule["action"] != "warn"]
    below = [
        each
        for each in tables
        if each["kind"] in ("process", "waited")
        or (each["kind"] == "groups" and (each["final"] or each["lateness"] is not None))
    ]
    return bool(held) and "drop" not in held and not below


def _kill(draw: random.Random) -> dict[str, Any]:
    """The process dies before one of its next writes; or a little later, and so within one."""
    writes, later = int(2 ** draw.uniform(0, 9)), draw.choice((0.0, 0.0, round(draw.uniform(0, 0.3), 3)))
    return {"do": "kill", "writes": writes, "later": later}


def _step(draw: random.Random, names: list[str]) -> dict[str, Any]:
    what = draw.choices(_STEPS, (6, 4, 8, 3, 2, 1, 1, 2))[0]
    if what == "some":
        return {"do": "some", "tables": draw.sample(names, draw.randint(1, len(names)))}
    if what == "crash":
        return {"do": "crash", "table": draw.choice(names), "after": draw.randint(1, 9)}
    if what in ("maintain", "rebuild"):
        after = draw.choice((None, draw.randint(1, 12)))
        return {"do": what, "table": draw.choice(names), "after": after}
    return {"do": what, "table": draw.choice(names)} if what == "reconcile" else {"do": what}


def _tables(draw: random.Random) -> list[Table]:
    found: list[Table] = []
    for of in draw.choice(("a", "a", "ab")):
        rules = [
            {
                "column": draw.choice("int"),
                "least": draw.randrange(-4, 3),
                "action": draw.choice(("warn", "drop", "quarantine", "quarantine")),
            }
            for _ in range(draw.choice((0, 0, 1, 2)))
        ]
        found.append(
            {
                "name": f"silver.{of}",
                "kind": "decoded",
                "source": f"bronze.{of}",
                "where": _maybe(draw, 0.2),
                "rules": [
                    rule
                    for at, rule in enumerate(rules)
                    if rule["column"] not in [r["column"] for r in rules[:at]]
                ]
                + _keyed(draw),
                "rows": _limit(draw),
            }
        )
    if len(found) == 2 and draw.random() < 0.7:
        of = [[table["name"], _maybe(draw, 0.3)] for table in found]
        found.append({"name": "silver.both", "kind": "union", "of": of, "rows": _limit(draw)})
    if draw.random() < 0.3:
        source = draw.choice(found)["name"]
        found.append(
            {
                "name": "silver.some",
                "kind": "rows",
                "source": source,
                "where": _maybe(draw, 0.8),
                "looked": draw.choice((None, "k", "j")),
                "rows": _limit(draw),
            }
        )
    rows = [table["name"] for table in found]
    groups = [_groups(draw, f"gold.g{at}", draw.choice(rows)) for at in range(draw.randint(1, 3))]
    if draw.random() < 0.35:
        pair = _pair(draw, rows, len(groups))
        groups += pair
        joined = _joined(draw, "gold.j", *pair)
        found += [*groups, joined] if joined else groups
    else:
        found += groups
    for at in range(draw.choice((0, 1, 1, 2))):
        made = _derived(draw, f"gold.v{at}", rows, groups)
        found += [made] if made else []
    if draw.random() < 0.25:
        among = [table["name"] for table in found if table["kind"] == "decoded"]
        found.append(
            {
                "name": "gold.p",
                "kind": "process",
                "sources": draw.sample(among, len(among)),
                "key": draw.choice(("k", "j", "ok", "dy")),
                "delay": draw.choice((0, 5, 30, HOUR)),
                "ttl": draw.choice((None, None, 3, 60)),
                "rows": _limit(draw),
            }
        )
    if len(rows) > 1 and draw.random() < 0.25:
        found.append(_waited(draw, rows))
    if draw.random() < 0.15:
        among = [table["source"] for table in found if table["kind"] == "decoded"]
        found.append(_compacted(draw, "gold.c", draw.choice(among)))
    return found


def _waited(draw: random.Random, rows: list[str]) -> Table:
    """Two streams joined by an outer join that is final."""
    join = draw.choice(("LEFT", "RIGHT", "FULL", "ANTI"))
    return {
        "name": "gold.w",
        "kind": "waited",
        "sources": draw.sample(rows, 2),
        "keys": draw.sample(("k", "j", "ok"), draw.choice((1, 1, 2))),
        "join": join,
        "apart": [
            draw.choice((None, 0, 60) if join in ("LEFT", "ANTI") else (0, 60)),
            draw.choice((0, 5, 60)),
        ],
        "left": draw.choice(list(COLUMNS)),
        "right": draw.choice(list(COLUMNS)),
        "delay": draw.choice((0, 5, 30, HOUR)),
        "final": True,
        "rows": _limit(draw),
    }


def _keyed(draw: random.Random) -> list[dict[str, Any]]:
    """A rule about rows of one key, or none; no two may keep rows out."""
    kind = draw.choice((None, None, None, "unique", "grows", "falls"))
    if kind is None:
        return []
    action = draw.choice(("warn", "drop", "quarantine", "quarantine"))
    if kind == "unique":
        return [{"keyed": kind, "column": draw.choice(("k", "j", "i", "d", "s", "dy")), "action": action}]
    rule = {"keyed": kind, "column": draw.choice("nitdw"), "within": draw.choice(("k", "j", "ok"))}
    return [{**rule, "strictly": draw.random() < 0.3, "action": action}]


def _groups(draw: random.Random, name: str, source: str) -> Table:
    view = draw.random() < 0.2
    kind = draw.choice((None, None, "time", "time", "session", "cumulative"))
    window: dict[str, Any] | None = None
    if kind:
        size = draw.choice((20, 60, 90))
        slide = {"time": draw.choice((size, size, size // 2, size // 5 * 2)), "cumulative": size // 5 or size}
        shown = draw.choice((["since"], ["upto"], ["since", "upto"], ["since"] if view else ["whole"]))
        if kind == "session" and not view:  # they grow, so both ends tell them
            shown = draw.choice((["since", "upto"], ["whole"]))
        if kind == "cumulative":
            size, shown = (
                slide["cumulative"] * 5,
                draw.choice((["since", "upto"], ["since", "upto"] if view else ["whole"])),
            )
        window = {"kind": kind, "size": size, "slide": slide.get(kind, size), "shown": shown}
    keys = draw.sample(
        ["k", "j", "t", "x", "f", "d", "w", "s", "ok", "dy", "i"], draw.choice((0, 1, 1, 1, 2))
    )
    final = bool(window) and not view and source in ("silver.a", "silver.b") and draw.random() < 0.5
    lateness = draw.choice((None, 0, 30)) if window and not view and not final else None
    return {
        "name": name,
        "kind": "groups",
        "source": source,
        "view": view,
        "window": window,
        "keys": keys,
        "where": _maybe(draw, 0.25),
        "final": final,
        "lateness": lateness,
        "delay": draw.choice((0, 5, 30, HOUR)) if window and not view else None,
        "outputs": [_output(draw, f"c{at}", view) for at in range(draw.randint(1, 4))],
        "rows": _limit(draw),
    }


def _output(draw: random.Random, name: str, view: bool) -> dict[str, Any]:
    known = ("count", "sum", "sum", "min", "max", "avg", "max_by", "min_by")
    # A view that is computed anew, as of sessions, leaves it to Spark which of equal orders is taken.
    fn = draw.choice(known[:6] if view else known)
    anything = list(COLUMNS)
    of = {"count": ["*", *anything], "sum": _SUMS, "avg": _MEANS}.get(fn, anything)
    if fn in ("min", "max") and not view:
        of = [*anything, PAIR, PAIR]
    out = {"name": name, "fn": fn, "of": draw.choice(of), "filter": _maybe(draw, 0.25)}
    if fn in ("max_by", "min_by"):
        out["by"] = draw.choice(anything)
        if draw.random() < 0.35:
            out["most"] = draw.randint(1, 3)
    return out


def exact(table: Table) -> list[str]:
    """The columns of a table of groups that no order of addition changes, and that are no lists."""
    shown = [each for each in (table["window"] or {}).get("shown", ()) if each != "whole"]
    plain = [
        out["name"]
        for out in table["outputs"]
        if "most" not in out
        and out["of"] != PAIR
        and out["fn"] != "avg"
        and not (out["fn"] == "sum" and out["of"] in _FLOATING)
    ]
    return [*shown, *table["keys"], *plain]


def _all_exact(table: Table) -> bool:
    """Whether that is each of its columns."""
    return {out["name"] for out in table["outputs"]} <= set(exact(table))


def _pair(draw: random.Random, rows: list[str], first: int) -> list[Table]:
    """Two tables with the same keys."""

    def plain(at: int) -> Table:
        made = _groups(draw, f"gold.g{at}", draw.choice(rows))
        while made["window"] or not made["keys"]:
            made = _groups(draw, f"gold.g{at}", draw.choice(rows))
        return made

    left = plain(first)
    return [left, {**plain(first + 1), "keys": left["keys"]}]


def _joined(draw: random.Random, name: str, left: Table, right: Table) -> Table | None:
    """Two tables with the same keys, or without any, joined; None: nothing of them can be compared."""
    sides = [[each for each in exact(table) if each not in table["keys"]] for table in (left, right)]
    if not (left["keys"] or any(sides)):
        return None
    return {
        "name": name,
        "kind": "joined",
        "sources": [left["name"], right["name"]],
        "keys": left["keys"],
        "left": sides[0],
        "right": sides[1],
        "join": draw.choice(("INNER", "LEFT", "FULL")) if left["keys"] else "CROSS",
    }


def _derived(draw: random.Random, name: str, rows: list[str], groups: list[Table]) -> Table | None:
    kind = draw.choice(_DERIVED)
    updated = [table for table in groups if not table["final"]]
    if kind == "changed":
        among = [table for table in updated if "whole" not in (table["window"] or {}).get("shown", ())]
        among = [table for table in among if table["keys"] or table["window"]]
        among = [table for table in among if not table["view"] or _all_exact(table)]  # all are its keys
        if not among:
            return None
        source = draw.choice(among)
        kept = [*(source["window"] or {}).get("shown", ()), *source["keys"]]
        columns = list(dict.fromkeys([*kept, *exact(source)]))
        counts = [out["name"] for out in source["outputs"] if out["fn"] == "count"]
        wheres = [f"{each} > 1" for each in counts] + [f"{each} IS NOT NULL" for each in columns]
        where = draw.choice(wheres)
        return {
            "name": name,
            "kind": kind,
            "source": source["name"],
            "columns": columns,
            "where": where,
            "rows": None,
        }
    if kind == "joined":
        pairs = [
            (a, b)
            for a in groups
            for b in groups
            if a["name"] != b["name"] and not a["window"] and not b["window"]
        ]
        pairs = [(a, b) for a, b in pairs if set(a["keys"]) == set(b["keys"])]
        if not pairs:
            return None
        return _joined(draw, name, *draw.choice(pairs))
    if kind == "met":
        return (
            {
                "name": name,
                "kind": kind,
                "sources": draw.sample(rows, 2),
                "keys": draw.sample(("k", "j", "ok"), draw.choice((1, 1, 2))),
                "near": draw.choice(("both", "both", "after", "none")),
                "apart": [draw.choice((0, 5, 60)), draw.choice((0, 5, 60))],
                "left": draw.choice(list(COLUMNS)),
                "right": draw.choice(list(COLUMNS)),
                "where": None,
                "rows": _limit(draw),
            }
            if len(rows) > 1
            else None
        )
    if kind == "changes":
        snapshots = draw.random() < 0.3
        return {
            "name": name,
            "kind": kind,
            "source": draw.choice(rows),
            "key": draw.choice(("k", "j")),
            "sequence": draw.choice(("n", "t", "dy", "ts")),
            "value": draw.choice(("i", "s", "d", "ok")),
            "deletes": None if snapshots else _maybe(draw, 0.6),
            "history": draw.random() < 0.5,
            "snapshots": snapshots,
        }
    plain = [column for column in COLUMNS if column not in _FLOATING]
    among = plain if kind in ("best", "extremes") else list(COLUMNS)
    source_name, columns = draw.choice(rows), draw.sample(among, 2)
    if updated and draw.random() < 0.5:
        source = draw.choice(updated)
        if exact(source):
            source_name, columns = source["name"], draw.sample(exact(source), min(2, len(exact(source))))
    return {"name": name, "kind": kind, "source": source_name, "columns": columns, "where": None}


def _compacted(draw: random.Random, name: str, source: str) -> Table:
    """What follows from the changes in a topic that is compacted; its other records are decoded beside."""
    key = draw.choice(("k", "j"))
    return {
        "name": name,
        "kind": "changes",
        "source": source,
        "tombstones": key,
        "key": key,
        "sequence": draw.choice(("sent", "coalesce(ts, sent)")),
        "value": draw.choice(("i", "s", "d", "ok")),
        "deletes": draw.choice((None, None, "n > 0", "d >= 0", "k <> 'a'", "coalesce(n, 0) = 0")),
        "history": draw.random() < 0.5,
        "snapshots": False,
        "rows": _limit(draw),
    }


def _maybe(draw: random.Random, share: float) -> str | None:
    return draw.choice(WHERE) if draw.random() < share else None


def _limit(draw: random.Random) -> int | None:
    return draw.choice((None, None, None, 5, 20))
