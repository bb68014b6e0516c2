"""The commit protocol: whatever ends when, each batch is in every target once, and split one way."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from raising import raises_code

from headwater.common.report import Account
from headwater.planner.aggregate import Aggregate, Output
from headwater.runtime import failpoints
from headwater.storage import log
from headwater.storage.commit import Built, Committer
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Lake
from headwater.storage.target import Target

FLOW, REJECTS = "silver.t", "quarantine.silver_t"
COLUMNS = pa.schema([("batch", pa.int64()), ("n", pa.int64()), ("attempt", pa.int64())])
COUNTS = pa.schema([("k", pa.string()), ("n", pa.int64())])
MERGED = ("merged", "merged, two")
AGGREGATE = Aggregate((Output("k", "key"), Output("n", "count")), window="")


class Crash(BaseException):
    """The process ends here."""


class Flow:
    """A flow as a process sees it: opened anew after each crash.

    Its builds never give the same twice: each attempt splits its ten rows at another place.
    """

    def __init__(self, lake: Path, kind: str) -> None:
        self.kind = kind
        self.lake = Lake(lake)
        columns = COUNTS if kind in MERGED else COLUMNS

        def merge(table: Target, rows: pa.Table, identity: Identity) -> int:
            return table.merge(rows, AGGREGATE.keys, AGGREGATE.merged(rows.schema), identity)

        self.table = Target(self.lake.create(FLOW, columns, properties={}))
        self.intents = IntentFile(self.lake.flow_folder(FLOW))
        self.lake.flow_folder(FLOW).mkdir(parents=True, exist_ok=True)
        self.committer = Committer(
            self.table,
            self.intents,
            merges={FLOW: merge} if kind in MERGED else {},
            open_target=lambda name: Target(self.lake.create(name, COLUMNS, properties={})),
        )

    def recover(self) -> None:
        left = self.committer.unsealed()
        if left is not None:
            self.committer.carry_out(left, self.build)

    def run(self, batches: int) -> None:
        """What a flow does: finish what was left, then the batches after its last."""
        self.recover()
        for sequence in range(self.table.last(FLOW) + 1, batches):
            intent = Intent(
                FLOW, 1, sequence, {"bronze.raw": sequence}, newest=sequence, clock="2026-01-01T00:00:00"
            )
            self.committer.carry_out(intent, self.build)

    def build(self, intent: Intent) -> Built:
        if self.kind in MERGED:
            taken = 10 if self.kind == "merged" else Flow.attempt % 9 + 1
            counts = [{"k": "all", "n": taken}, {"k": f"b{intent.sequence}", "n": 1}]
            merged = {FLOW: pa.Table.from_pylist(counts, COUNTS)}
            if self.kind == "merged":
                return Built(merged)
            rejects = self.write(self.committer.target(REJECTS), intent, range(10 - taken))
            return Built({REJECTS: rejects, **merged})
        if self.kind == "one":
            return Built({FLOW: self.write(self.table, intent, range(10))})
        cut = Flow.attempt % 9 + 1
        rejects = self.write(self.committer.target(REJECTS), intent, range(cut))
        return Built({REJECTS: rejects, FLOW: self.write(self.table, intent, range(cut, 10))})

    attempt = 0

    def write(self, target: Target, intent: Intent, rows: range) -> list[str]:
        Flow.attempt += 1
        data = [{"batch": intent.sequence, "n": n, "attempt": Flow.attempt} for n in rows]
        return target.write(pa.Table.from_pylist(data, COLUMNS), intent.batch)


Arm = Callable[[int], list[str]]


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Arm:
    """Crash at the n-th step from here; returns the steps that are reached."""

    def arm(count: int) -> list[str]:
        steps: list[str] = []

        def reach(step: str, flow: str) -> None:
            assert step in failpoints.STEPS and flow == FLOW
            steps.append(step)
            if len(steps) == count:
                raise Crash(step)

        monkeypatch.setattr(failpoints, "reach", reach)
        return steps

    return arm


def rows(lake: Path, name: str) -> list[dict[str, int]]:
    places = Lake(lake).places()
    return DeltaTable(places[name].path).to_pyarrow_table().to_pylist() if name in places else []


def check(lake: Path, kind: str, batches: int) -> None:
    """Each batch is in every target once, split one way, and the log says so."""
    if kind in MERGED:
        found = {row["k"]: row["n"] for row in rows(lake, FLOW)}
        found["all"] += len(rows(lake, REJECTS))
        assert found == {"all": 10 * batches, **{f"b{n}": 1 for n in range(batches)}}
        assert not list(Lake(lake).place(FLOW).path.glob("0*"))  # staged rows that are merged are gone
    else:
        found = [*rows(lake, FLOW), *rows(lake, REJECTS)]
        assert sorted((row["batch"], row["n"]) for row in found) == [
            (batch, n) for batch in range(batches) for n in range(10)
        ]
    flow = Flow(lake, kind)
    assert flow.committer.unsealed() is None
    assert flow.table.flows[FLOW] == {
        "generation": 1,
        "sequence": batches - 1,
        "consumed": {"bronze.raw": batches - 1},
        "newest": batches - 1,
    }
    places = Lake(lake).places().values()
    assert {log.head(place.path) for place in places} == {
        batches
    }  # one commit each: a file added twice is once


STEPS = {
    "one": ["pinned", "built", "committing", "committed", "sealed"],
    "two": ["pinned", "built", "staged", "committing", "committing", "committed", "sealed"],
    "merged": ["pinned", "built", "committing", "committed", "sealed"],
    "merged, two": ["pinned", "built", "staged", "committing", "committing", "committed", "sealed"],
}
PLACES = [(kind, at) for kind, steps in STEPS.items() for at in range(1, len(steps) + 1)]


@pytest.mark.parametrize("kind", STEPS)
def test_the_steps_of_a_batch(tmp_path: Path, kind: str, crash_at: Arm) -> None:
    steps = crash_at(0)
    Flow(tmp_path, kind).run(1)
    assert steps == STEPS[kind]
    check(tmp_path, kind, 1)


@pytest.mark.parametrize(("kind", "at"), PLACES)
def test_a_crash_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, kind: str, at: int, crash_at: Arm
) -> None:
    crash_at(0)
    Flow(tmp_path, kind).run(2)
    crash_at(at)
    with pytest.raises(Crash):
        Flow(tmp_path, kind).run(3)
    crash_at(0)
    Flow(tmp_path, kind).run(4)
    check(tmp_path, kind, 4)


@pytest.mark.parametrize("kind", STEPS)
def test_crash_after_crash(tmp_path: Path, kind: str, crash_at: Arm) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw, crashes = random.Random(seed), 0
    for _ in range(25):
        crash_at(draw.randint(1, 12))
        try:
            Flow(tmp_path, kind).run(5)
        except Crash:
            crashes += 1
    assert crashes > 1
    crash_at(0)
    Flow(tmp_path, kind).run(5)
    check(tmp_path, kind, 5)


def test_what_was_staged_is_what_is_committed(tmp_path: Path, crash_at: Arm) -> None:
    crash_at(3)
    with pytest.raises(Crash, match="staged"):
        Flow(tmp_path, "two").run(1)
    crash_at(0)
    flow = Flow(tmp_path, "two")
    left = flow.committer.unsealed()
    assert left is not None and left.staged is not None and list(left.staged) == [REJECTS, FLOW]

    def never(intent: Intent) -> Built:
        raise AssertionError("a staged batch is not built again")

    done = flow.committer.carry_out(left, never)
    assert (list(done.phases), done.account) == (["pin", "commit", "seal"], Account())
    for name, files in left.staged.items():
        place = Lake(tmp_path).place(name)
        assert [str(place.path / file) for file in files] == [f.path for f in log.read(place.path, 1).added]
    check(tmp_path, "two", 1)


def test_what_a_commit_returns_of_a_batch(tmp_path: Path) -> None:
    flow, account = Flow(tmp_path, "one"), Account(rows_in=10, rows_out=10)

    def build(intent: Intent) -> Built:
        time.sleep(0.05)
        return Built({FLOW: flow.write(flow.table, intent, range(10))}, account=account)

    intent = Intent(FLOW, 1, 0, {"bronze.raw": 0}, clock="2026-01-01T00:00:00")
    began = time.monotonic()
    done = flow.committer.carry_out(intent, build)
    assert (done.version, done.account) == (1, account)
    assert list(done.phases) == ["pin", "build", "commit", "seal"]
    assert done.phases["build"] >= 0.05 and min(done.phases.values()) > 0
    assert sum(done.phases.values()) <= time.monotonic() - began
    again = flow.committer.carry_out(intent, build)  # as after a kill between commit and seal
    assert (again.version, again.account, list(again.phases)) == (1, Account(), ["pin", "seal"])


def test_a_sealed_batch_is_left_alone(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "two")
    flow.run(1)
    intent = flow.intents.read()
    assert intent is not None and intent.sealed and intent.staged is None and intent.files == []
    assert flow.committer.unsealed() is None


def test_an_intent_of_a_table_that_was_removed_is_not_done(tmp_path: Path, crash_at: Arm) -> None:
    crash_at(0)
    Flow(tmp_path / "a", "one").run(3)
    crash_at(1)
    with pytest.raises(Crash):
        Flow(tmp_path / "a", "one").run(4)
    folder = Lake(tmp_path / "b").flow_folder(FLOW)
    folder.parent.mkdir(parents=True)
    Lake(tmp_path / "a").flow_folder(FLOW).rename(folder)
    assert Flow(tmp_path / "b", "one").committer.unsealed() is None


@pytest.mark.parametrize("kind", STEPS)
def test_another_writers_commit_is_an_error_that_names_table_and_path(tmp_path: Path, kind: str) -> None:
    flow = Flow(tmp_path, kind)
    flow.run(1)
    strange = pa.Table.from_pylist([], COUNTS if kind in MERGED else COLUMNS)
    write_deltalake(flow.table.place.path, strange, mode="append")
    with raises_code("WRITTEN_BY_OTHERS") as refused:
        flow.run(2)
    says = str(refused.value)
    assert (
        says.startswith(f"silver.t: {flow.table.place.path} is past version 1") and "find that writer" in says
    )
    assert log.head(flow.table.place.path) == 2  # nothing of batch 1


def test_another_writers_commit_to_the_quarantine_stops_the_batch(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "two")
    flow.run(1)
    write_deltalake(Lake(tmp_path).place(REJECTS).path, pa.Table.from_pylist([], COLUMNS), mode="append")
    with raises_code("WRITTEN_BY_OTHERS", table="quarantine.silver_t", match=rf"^{REJECTS}: "):
        flow.run(2)
    assert len(rows(tmp_path, FLOW)) + len(rows(tmp_path, REJECTS)) == 10


def test_a_table_written_by_others_since_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """What the flows have done stands in each of the engine's commits; in a stranger's it does not."""
    Flow(tmp_path, "one").run(2)
    place = Lake(tmp_path).place(FLOW)
    write_deltalake(place.path, pa.Table.from_pylist([], COLUMNS), mode="append")
    with raises_code(
        "WRITTEN_BY_OTHERS",
        table="silver.t",
        match=r"^silver\.t: something else made version 3 \(WRITE\) of .*: remove ",
    ):
        Flow(tmp_path, "one").run(3)
    assert len(rows(tmp_path, FLOW)) == 20


def test_an_empty_batch_is_a_commit_without_files(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "one")
    intent = Intent(FLOW, 1, 0, {"bronze.raw": 0}, clock="2026-01-01T00:00:00")
    done = flow.committer.carry_out(intent, lambda _: Built({FLOW: flow.write(flow.table, intent, range(0))}))
    assert done.version == 1
    commit = log.read(flow.table.place.path, 1)
    assert commit.added == () and commit.flows[FLOW]["sequence"] == 0


@pytest.mark.parametrize(("every", "expected"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4]), (20, [])])
def test_checkpoints_are_so_many_commits_apart(tmp_path: Path, every: int, expected: list[int]) -> None:
    table = Target(Lake(tmp_path).create(FLOW, COLUMNS, properties={}))
    for sequence in range(5):
        table.append([], Identity(FLOW, 1, sequence, {}))
        table.checkpoint(every)
    written = sorted((table.place.path / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(path.name[:20]) for path in written] == expected


def test_a_sum_that_outgrows_its_type_is_not_committed(tmp_path: Path) -> None:
    columns = pa.schema([("k", pa.string()), ("total", pa.int64())])
    sums = Aggregate((Output("k", "key"), Output("total", "sum")), window="")
    table = Target(Lake(tmp_path).create("gold.x", columns, properties={}))
    for sequence, n in enumerate((2**63 - 1, 10)):
        rows, identity = pa.table([["a"], [n]], schema=columns), Identity("gold.x", 1, sequence, {})
        if n == 10:
            with pytest.raises(DeltaError):
                table.merge(rows, sums.keys, sums.merged(rows.schema), identity)
        else:
            table.merge(rows, sums.keys, sums.merged(rows.schema), identity)
    assert table.version == 1 and table.held(columns).to_pylist() == [{"k": "a", "total": 2**63 - 1}]


def test_staged_rows_outlive_a_crash_in_their_merge(
    tmp_path: Path, crash_at: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> int:
        raise Crash("merging")

    crash_at(0)
    with monkeypatch.context() as patched:
        patched.setattr(Target, "merge", crash)
        with pytest.raises(Crash, match="merging"):
            Flow(tmp_path, "merged, two").run(1)
    Flow(tmp_path, "merged, two").run(2)
    check(tmp_path, "merged, two", 2)
