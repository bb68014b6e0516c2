"""Views that are kept by what rows add to their groups and take from them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from commands import call
from pyspark.sql import SparkSession
from test_touched import FEW, FILES, KEPT, A, B, Changing, anew, definitions

from headwater.flows import computed
from headwater.flows.by_groups import ByGroups
from headwater.operations import savepoints
from headwater.operations.maintain import maintain
from headwater.operations.rebuild.reconcile import reconcile
from headwater.planner.analysis import analyse
from headwater.query.inspect.status import standings
from headwater.runtime import failpoints
from headwater.storage.names import stage_name, state_name
from headwater.testing import Project

GROUPED = {
    "distinct": (
        "SELECT k, count(DISTINCT s) AS ss, count(DISTINCT x) AS xs, count(*) AS n FROM silver.a GROUP BY k",
        "k",
    ),
    "filtered": (
        "SELECT s, count(DISTINCT k) FILTER (WHERE x > 2) AS few, count(DISTINCT k) AS ks, "
        "count(x) FILTER (WHERE x < 3) AS low, sum(x) FILTER (WHERE x < 3) AS sum, max(x) AS most "
        "FROM silver.a WHERE id % 5 > 0 GROUP BY s",
        "s",
    ),
    "changing": (
        "SELECT n, count(*) AS ks, sum(x) AS total, avg(x) AS mean, count(DISTINCT x) AS xs FROM gold.few "
        "GROUP BY n",
        "n",
    ),
    "computed": (
        "SELECT n % 2 AS odd, x > 2 AS high, sum(CAST(k AS DECIMAL(9, 2)) / 2) AS half, avg(k) AS mean, "
        "count(DISTINCT n + x) AS sums FROM gold.few GROUP BY n % 2, x > 2",
        "odd, high",
    ),
    "doubles": (
        "SELECT k, avg(x / 4) AS quarter, count(DISTINCT id) AS ids, min(s) AS s FROM silver.a GROUP BY k",
        "k",
    ),
}
ABOVE = {  # more is made of the groups
    "having": ("SELECT k, count(DISTINCT x) AS xs FROM silver.a GROUP BY k HAVING count(*) > 1", "k"),
    "computes": (
        "SELECT k + 1 AS more, k, sum(x) / count(*) AS mean, coalesce(max(s), '-') || count(DISTINCT x) AS t "
        "FROM silver.a GROUP BY k HAVING sum(x) % 3 > 0 AND k IS NOT NULL",
        "",
    ),
    "best": (
        "SELECT * FROM (SELECT k, s, n, rank() OVER (PARTITION BY k ORDER BY n DESC, s) AS place FROM "
        "(SELECT k, s, count(*) AS n FROM silver.a GROUP BY k, s)) WHERE place = 1",
        "k",
    ),
    "best by value": (
        "SELECT k, n, row_number() OVER (PARTITION BY n ORDER BY k) AS place FROM "
        "(SELECT k, count(*) AS n FROM gold.few GROUP BY k)",
        "n, place",
    ),
    "joined": (
        "SELECT a.id, t.ks, t.xs FROM silver.a a LEFT JOIN (SELECT n, count(*) AS ks, "
        "count(DISTINCT x) AS xs FROM gold.few GROUP BY n) t ON a.k = t.n",
        "id",
    ),
    "twice": (
        "WITH t AS (SELECT k, count(*) AS n FROM silver.a GROUP BY k) "
        "SELECT t.k, t.n, u.n AS next FROM t LEFT JOIN t u ON u.k = t.n",
        "k",
    ),
    "median of sums": (
        "SELECT odd, median(n) AS n FROM (SELECT k % 2 AS odd, s, count(*) AS n FROM silver.a "
        "GROUP BY k % 2, s) GROUP BY odd",
        "odd",
    ),
    "named": (
        "SELECT i.name, count(*) AS n, sum(few.n) AS total FROM gold.few few LEFT JOIN reference.items i "
        "ON few.k = i.k GROUP BY i.name",
        "name",
    ),
    "all": ("SELECT count(*) AS n, count(DISTINCT k) AS ks, sum(x) AS x FROM gold.few", ""),
    "all of it": ("SELECT max(x) - min(x) AS wide, 1 AS one FROM silver.a HAVING count(*) % 3 > 0", "one"),
    "some keys": (
        "SELECT k, max(n) AS n FROM (SELECT k, s, count(DISTINCT x) AS n FROM silver.a GROUP BY k, s) "
        "WHERE s = 'p' GROUP BY k",
        "k",
    ),
    "rolled up": (
        "SELECT k, s, grouping_id() AS g, count(*) AS n, sum(x) AS x FROM silver.a GROUP BY ROLLUP (k, s)",
        "k, s, g",
    ),
    "windows": (
        "SELECT window.start AS from, s, window AS w, count(*) * 2 AS n FROM silver.a "
        "GROUP BY window(timestamp_micros(id * 250000), '1 second'), s HAVING count(*) > 1",
        "from, s",
    ),
}
GOING = {  # extremes of rows that go
    "extremes": (
        "SELECT n, min(x) AS least, max(x) AS most, max(k) AS k, min(k) FILTER (WHERE x > 2) AS high, "
        "count(DISTINCT x) AS xs, max(CAST(x AS DECIMAL(9, 2)) / 3) AS third, max(string(k)) AS text "
        "FROM gold.few GROUP BY n",
        "n",
    ),
    "of all": ("SELECT min(x) AS least, max(n) AS most FROM gold.few", ""),
    "of sums": (
        "SELECT xs, max(k) AS k FROM (SELECT k, sum(x) AS xs FROM silver.a GROUP BY k) GROUP BY xs",
        "xs",
    ),
}
STAGED = {
    "average of most": (
        "SELECT c, avg(most) AS mean, count(*) AS n FROM (SELECT a.k, b.c, max(a.x) AS most FROM silver.a a "
        "JOIN silver.b b ON a.k = b.k AND b.y <= a.x GROUP BY a.k, b.c) GROUP BY c",
        "c",
    ),
    "without the inner key": (
        "SELECT odd, sum(n) AS n, count(DISTINCT ss) AS sizes FROM (SELECT max(n) % 2 AS odd, count(*) AS n, "
        "count(DISTINCT s) AS ss FROM (SELECT a.k, a.s, few.n FROM silver.a a LEFT JOIN gold.few few "
        "ON a.k = few.k) GROUP BY k HAVING count(*) > 1) WHERE n < 9 GROUP BY odd",
        "odd",
    ),
    "of a changing table": (
        "SELECT xs, count(*) AS n, sum(ks) AS ks FROM (SELECT n, count(DISTINCT x) AS xs, "
        "count(DISTINCT k) AS ks FROM gold.few GROUP BY n) GROUP BY xs",
        "xs",
    ),
}
WITHIN = {  # of groups that are kept by groups too, of a table whose rows never change
    "mean of most": (
        "SELECT s, avg(most) AS mean, min(xs) AS xs, count(*) AS n FROM (SELECT k, s, max(x) AS most, "
        "count(DISTINCT x) AS xs FROM silver.a GROUP BY k, s HAVING count(*) <> 2) WHERE most > 0 GROUP BY s",
        "s",
    ),
    "of windows": (
        "SELECT name, sum(n) AS n, count(DISTINCT most - s) AS ws FROM (SELECT i.name, "
        "window(timestamp_micros(a.id * 250000), '1 second') AS w, length(max(a.s)) AS s, "
        "max(a.x) + 1 AS most, count(*) AS n FROM silver.a a LEFT JOIN reference.items i ON a.k = i.k "
        "GROUP BY i.name, 2) GROUP BY name",
        "name",
    ),
}
OTHERS = {  # kept otherwise
    "halves": ("SELECT k, median(x) AS half, count(DISTINCT x) AS xs FROM silver.a GROUP BY k", "k"),
    "doubles": ("SELECT n, sum(x / 4) AS quarter FROM gold.few GROUP BY n", "n"),
    # A change of what is looked at beside the rows changes groups without a row of theirs.
    "of some": ("SELECT k, count(*) AS n FROM silver.a WHERE k IN (SELECT c FROM silver.b) GROUP BY k", "k"),
    "times": ("SELECT k, sum(x * (SELECT max(y) FROM silver.b)) AS x FROM silver.a GROUP BY k", "k"),
    "above": ("SELECT k, sum(x - (SELECT min(x) FROM silver.a)) AS x FROM silver.a GROUP BY k", "k"),
    "twins": (
        "SELECT t.k, t.n, u.n AS other FROM (SELECT k, count(*) AS n FROM silver.b GROUP BY k) t "
        "LEFT JOIN (SELECT k, count(*) AS n FROM silver.twin GROUP BY k) u ON u.k = t.k",
        "k",
    ),
    "united": (
        "SELECT k, count(*) AS n FROM (SELECT * FROM silver.named UNION ALL SELECT * FROM reference.items) "
        "GROUP BY k",
        "k",
    ),
    "with a number": (
        "WITH p AS (SELECT 2 AS least) SELECT k, count(*) AS n FROM silver.a CROSS JOIN p WHERE x > least "
        "GROUP BY k",
        "k",
    ),
}
TWINS = {
    "silver/twin.sql": "CREATE STREAMING TABLE twin AS SELECT * FROM STREAM silver.b",
    "silver/named.sql": "CREATE STREAMING TABLE named AS SELECT k, s AS name FROM STREAM silver.a",
}


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(2, 5))]
)
def test_after_each_batch_they_are_what_their_queries_give(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    monkeypatch.setattr(computed, "WHOLE", -1)
    case = Changing(tmp_path, interpreted, GROUPED | ABOVE | GOING | STAGED | WITHIN)
    grouped: set[str] = set()
    of_groups = ByGroups.changes

    def noted(self: ByGroups, *args: Any) -> Any:
        if found := of_groups(self, *args):
            grouped.add(self._view.target.place.name)
        return found

    monkeypatch.setattr(ByGroups, "changes", noted)
    flows: dict[str, Any] = {name: case.flow(name) for name in (FEW, *case.views)}
    for turn in range(4 if seed == 1 else 8):
        case.change(draw)
        for flow in flows.values():
            while flow.step():
                pass
        for name in case.views if seed > 1 or turn % 2 else ():
            assert anew(flows[name]) == 0, (seed, turn, name)
    assert grouped == {FEW, *case.views}
    assert all(len(case.rows(state_name(name))) for name in case.views)
    staged = [path[:-4].replace("/", ".") for path in definitions(STAGED | WITHIN)]
    assert [name for name in staged if not len(case.rows(stage_name(name)))] == []
    told = analyse(interpreted, case.definitions)
    within = [name for name in staged if (stage := told[name].stage) and stage.groups is not None]
    assert within == staged[len(STAGED) :]


def test_a_view_of_one_group_keeps_its_row_where_nothing_of_a_batch_reaches_it(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed, "WHOLE", -1)
    queries = {
        "filtered": ("SELECT count(*) AS n, sum(x) AS x FROM silver.a WHERE s = 'p'", ""),
        "met": ("SELECT count(*) AS n FROM silver.a a JOIN reference.items i ON a.k = i.k", ""),
        "large ones": (
            "SELECT count(*) AS n FROM (SELECT k, count(*) AS c FROM silver.a GROUP BY k) WHERE c > 1",
            "",
        ),
        "of few": ("SELECT count(*) AS n FROM gold.few WHERE n > 1", ""),
    }
    case = Changing(tmp_path, interpreted, queries)
    flows = [case.flow(name) for name in (FEW, *case.views)]
    for s, k in ("pq", 1), ("q", 99), ("q", 98):
        case.append(A, [{"id": at, "k": k, "x": 1, "s": each} for at, each in enumerate(s)])
        for flow in flows:
            while flow.step():
                pass
        assert [anew(flow) for flow in flows[1:]] == [0] * len(queries)
    assert [case.rows(name, "n") for name in case.views] == [[(1,)], [(2,)], [(1,)], [(1,)]]


RATES = {f"conf/reference/{name}.ddl": "rate BIGINT\n" for name in ("eur", "usd")}
IN_RATES = "(SELECT max(rate) FROM reference.{})"
PAID = """SELECT k, sum(x * {eur}) AS eur, sum(x * {usd}) AS usd, sum(x * {eur}) + 1 AS more
FROM silver.a GROUP BY k"""
EACH = "(SELECT k, count(*) AS n FROM silver.a WHERE x IN (SELECT rate FROM reference.{}) GROUP BY k)"


@pytest.mark.parametrize("rates", [(2, 3), (2, 2)])
def test_reference_tables_of_the_same_columns_are_told_apart(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rates: tuple[int, int]
) -> None:
    monkeypatch.setattr(computed, "WHOLE", -1)
    eur, usd = IN_RATES.format("eur"), IN_RATES.format("usd")
    queries = {
        "paid": (PAID.format(eur=eur, usd=usd), "k"),
        "counted": (
            f"SELECT count(DISTINCT x * {eur}) AS n, count(DISTINCT x * {usd}) AS m FROM silver.a",
            "",
        ),
        "both": (
            f"SELECT e.k, e.n, u.n AS m FROM {EACH.format('eur')} e JOIN {EACH.format('usd')} u USING (k)",
            "k",
        ),
    }
    files = {
        f"conf/reference/{name}.csv": f"rate\n{rate}\n"
        for name, rate in zip(("eur", "usd"), rates, strict=True)
    }
    case = Changing(tmp_path, interpreted, queries, {**RATES, **files})
    flows = [case.flow(name) for name in case.views]
    for x in (2, 3, 2):
        case.append(A, [{"id": x, "k": 1, "x": x, "s": "p"}])
        for flow in flows:
            while flow.step():
                pass
        assert [anew(flow) for flow in flows] == [0] * len(queries)
    paid, counted, both = case.views
    assert case.rows(paid, "k, eur, usd, more") == [(1, 7 * rates[0], 7 * rates[1], 7 * rates[0] + 1)]
    assert case.rows(counted, "n, m") == [(2, 2)]
    assert case.rows(both, "k, n, m") == [(1, 2, 1 if rates[1] == 3 else 2)]


def test_others_are_not_kept_so(interpreted: SparkSession, tmp_path: Path) -> None:
    case = Project({**FILES, **TWINS, **definitions(OTHERS)}, tmp_path, spark=interpreted)
    told = analyse(interpreted, case.definitions)
    assert all(told[f"gold.v_{name.replace(' ', '_')}"].groups is None for name in OTHERS)
    assert A in told and B in told


def test_the_least_number_of_a_type_goes_as_others_do(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed, "WHOLE", -1)
    least = "SELECT n, sum(x) AS total, avg(x) AS mean, sum(x * 4294967296) AS wide FROM gold.few GROUP BY n"
    case = Changing(tmp_path, interpreted, {"least": (least, "n")})
    flows = [case.flow(name) for name in (FEW, *case.views)]
    for x in (-(2**31), 5):
        case.append(A, [{"id": x, "k": 1, "x": x, "s": "p"}])
        for flow in flows:
            while flow.step():
                pass
        assert anew(flows[-1]) == 0
    (view,) = case.views
    assert case.rows(view, "n, total, mean, wide") == [(2, 5, 5.0, 5 * 2**32)]


def test_its_newest_batch_says_what_it_touched_read_and_wrote(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed, "WHOLE", -1)
    case = Changing(tmp_path, interpreted, {"having": ABOVE["having"]})
    (view,) = case.views
    rows = [{"id": at, "k": at % 3, "x": at, "s": "p"} for at in range(9)]

    def told() -> Any:
        (standing,) = (one for one in standings(case.definitions) if one.table == view)
        return standing.batch

    case.append(A, rows)
    case.step(view)
    assert told() == {"rows_read": 9, "keys_touched": None, "rows_written": 3}
    case.append(A, [{"id": 10, "k": 1, "x": 10, "s": "p"}, {"id": 11, "k": 5, "x": 1, "s": "p"}])
    case.step(view)
    assert told() == {"rows_read": 2, "keys_touched": 2, "rows_written": 1}
    (newest, *_) = json.loads(call(["history", view, "--json"], tmp_path).stdout)
    assert (newest["rows_read"], newest["keys_touched"], newest["rows_changed"]) == (2, 2, 1)
    said = call(["status"], tmp_path).stdout.splitlines()
    assert any(line.split() == [view, "2", "2", "1"] for line in said), said


class Killed(BaseException):
    """A process is no more."""


WAYS = {  # by touched rows, groups, groups with more above and beside, two kinds of inner part
    "left": KEPT["left"],
    "extremes": GOING["extremes"],
    "joined": ABOVE["joined"],
    "average of most": STAGED["average of most"],
    "mean of most": WITHIN["mean of most"],
}


IN_SHORT = {"left", "joined"}  # the others are torture's


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.torture] * (way not in IN_SHORT)) for way in WAYS]
)
def test_killed_at_any_step_and_beside_all_else_they_are_what_their_queries_give(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    monkeypatch.setattr(computed, "WHOLE", -1)
    case = Changing(tmp_path, interpreted, {way: WAYS[way]})
    case.write({"conf/local.yaml": "kafka: embedded\nmaintain: {keep: 0s, checkpoint: 3}\n"})
    (view,) = case.views
    for _ in range(2):
        case.change(draw)
    case.step()
    done = failpoints.reach

    def beside(number: int) -> None:
        """Something is done to the tables before the view goes on."""
        what = draw.choice(("maintain", "rebuild", "restore", "nothing"))
        print(what)
        if what == "maintain":
            maintain(case.definitions)
        elif what == "rebuild":
            case.rebuild(draw.choice((view, FEW)))
        elif what == "restore":
            savepoints.create(case.definitions, f"s{number}")
            case.change(draw)
            case.step()
            savepoints.restore(case.definitions, f"s{number}")
        case.restart()

    steps = [(step, 1) for step in ("pinned", "built", "staged", "committed")]
    steps += [("committing", n) for n in (1, 2, 3)]
    kills = set[tuple[str, int]]()
    for number, (step, times) in enumerate(steps):
        left = [times]

        def killed(at: str, flow: str, step: str = step, left: list[int] = left) -> None:
            if (at, flow) == (step, view):
                left[0] -= 1
                if not left[0]:
                    raise Killed
            done(at, flow)

        for _ in range(4):  # where a change touches nothing there is no batch
            case.change(draw)
            case.step(FEW)
            monkeypatch.setattr(failpoints, "reach", killed)
            try:
                case.flow(view).step()
            except Killed:
                kills.add((step, times))
                break
            finally:
                monkeypatch.setattr(failpoints, "reach", done)
        beside(number)
        case.step()
        flow: Any = case.flow(view)
        flow.recover()
        while flow.step():
            pass
        assert anew(flow) == 0, (seed, step, times)
    assert kills >= {(step, 1) for step in ("pinned", "built", "committing", "committed")}
    (found,) = reconcile(case.definitions, [view])
    assert found.same, found


def test_of_another_definition_what_is_kept_is_made_anew_or_goes(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed, "WHOLE", -1)
    query = "SELECT k, count(DISTINCT {}) AS n FROM silver.a GROUP BY k"
    view, state = "gold.v_it", state_name("gold.v_it")
    columns: set[str] = set()
    for value in ("x", "s", "s"):
        case = Changing(tmp_path, interpreted, {"it": (query.format(value), "k")})
        case.change(random.Random(1))
        case.step(view)
        flow: Any = case.flow(view)
        assert anew(flow) == 0 and len(case.rows(state))
        columns.add(str(case.lake.place(state).generation))
    assert columns == {"1", "2"}
    case.lake.drop([state], [])
    case.lake.finish()
    case.append(A, [{"id": 10**6, "k": 1, "x": 1, "s": "r"}])
    case.restart().step(view)
    assert anew(case.flow(view)) == 0 and len(case.rows(state))  # type: ignore[arg-type]
    case = Changing(
        tmp_path,
        interpreted,
        {"it": ("SELECT k, CAST(median(x) AS BIGINT) AS n FROM silver.a GROUP BY k", "k")},
    )
    case.flow(view)
    assert state not in case.lake.places()


def test_explain_says_what_is_kept_beside_them(interpreted: SparkSession, tmp_path: Path) -> None:
    views = {"distinct": GROUPED["distinct"], "average": STAGED["average of most"]}
    Project({**FILES, **definitions(views)}, tmp_path, spark=interpreted)
    said = {one["table"]: one for one in json.loads(call(["explain", "--json"], tmp_path).stdout)}
    assert [*said["gold.v_distinct"]["beside"]] == ["gold.v_distinct__state"]
    average = said["gold.v_average"]
    assert [*average["beside"]] == ["gold.v_average__1", "gold.v_average__state"]
    assert {touched["source"] for touched in average["touched"]} == {A, B}
    assert "gold.v_average__1" in call(["explain", "gold.v_average"], tmp_path).stdout


def test_what_is_kept_is_rebuilt_with_the_view_and_reconciled(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed, "WHOLE", -1)
    name = "average of most"
    case = Changing(tmp_path, interpreted, {name: STAGED[name]})
    (view,) = case.views
    draw = random.Random(1)
    for _ in range(4):
        case.change(draw)
        case.step()
    before = {*case.rows(view)}
    case.rebuild(view)
    places = case.lake.places()
    assert {places[each].generation for each in (view, state_name(view), stage_name(view))} == {2}
    assert {*case.rows(view)} == before
    case.change(draw)
    case.step()
    assert anew(case.flow(view)) == 0  # type: ignore[arg-type]
    (found,) = reconcile(case.definitions, [view])
    assert found.same and len(found.differences) == 3, found
