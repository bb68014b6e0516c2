"""What the simulator has found, each by itself: two who do something at the same moment."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from raising import raises_code
from simulator import flows
from simulator.engine import simulated
from simulator.flows import BRONZE, NUMBERS, QUARANTINE, ROWS, SILVER, Project
from simulator.invariants import files_of
from simulator.world import World

from headwater.common import times
from headwater.operations import maintain
from headwater.operations.maintain.clean import clean, forget_uncommitted
from headwater.operations.maintain.compact import compact
from headwater.operations.savepoints.cut import tables
from headwater.runtime import failpoints
from headwater.storage import checksums, delta, lease, log, past, ranges, store
from headwater.storage.commit import Built, Committer
from headwater.storage.identity import Identity
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.lake import Lake
from headwater.storage.lease import Lease
from headwater.storage.names import replay_name
from headwater.storage.target import Target


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A world without processes, in which everything is done in order."""
    made = World(tmp_path / "lake", random.Random(0))
    with simulated(made):
        yield made


def topic(world: World, records: int = 6) -> Target:
    """A table of the topic, of one commit for each record, the newest of which has a checkpoint."""
    table = Target(Lake(world.root).create(BRONZE, NUMBERS, properties={}))
    for at in range(records):
        rows = pa.table([[at], [0]], schema=NUMBERS)
        table.append(table.write(rows, f"{at:012d}"), Identity(BRONZE, 1, at, {}))
        world.sleep(1.0)
    table.checkpoint(1)
    return table


def taken(world: World) -> list[int]:
    """The offsets that silver and its quarantine have."""
    places = Lake(world.root).places()
    return sorted(
        row["offset"]
        for name, columns in ((SILVER, ROWS), (QUARANTINE, flows.BESIDE[QUARANTINE]))
        for file in files_of(places[name].path, log.head(places[name].path))
        for row in pa.table(flows.stored.read(file, columns)).to_pylist()
    )


def soon() -> dict[str, object]:
    return {"before": times.now() + timedelta(hours=1)}


def test_a_first_batch_is_taken_anew_where_the_beginning_went_before_it_was_pinned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = topic(world)
    project = Project(6, (SILVER,), flows.Limits(max_rows_per_batch=2), lake=world.root)
    context = flows.context_of(world, project, Lake(world.root), ended=(BRONZE,))
    steps = []

    def reach(step: str, flow: str) -> None:
        steps.append(step)
        if steps == ["pinned"]:
            clean(table.place.path, upto=table.version, **soon())  # type: ignore[arg-type]

    monkeypatch.setattr(failpoints, "reach", reach)
    flows.flow_of(context, SILVER).run()
    assert log.first(table.place.path) == table.version  # nothing but the checkpoint is left
    assert taken(world) == list(range(6))


def test_who_begins_where_the_log_did_takes_a_snapshot_once_that_has_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = topic(world)
    clean(table.place.path, upto=table.version, **soon())  # type: ignore[arg-type]
    project = Project(6, (SILVER,), flows.Limits(max_rows_per_batch=2), lake=world.root)
    flow = flows.flow_of(flows.context_of(world, project, Lake(world.root), ended=(BRONZE,)), SILVER)
    looks, first = [], log.first
    monkeypatch.setattr(
        log, "first", lambda path: looks.append(path) or (0 if len(looks) == 1 else first(path))
    )
    flow.run()
    assert looks and taken(world) == list(range(6))


def test_rows_that_expire_before_a_table_that_is_there_has_begun_are_read(world: World) -> None:
    table = topic(world)
    project = Project(6, (SILVER,), lake=world.root, retention="2 hours")
    context = flows.context_of(world, project, Lake(world.root), ended=(BRONZE,))
    flow = flows.flow_of(context, SILVER)
    expired = []
    for _ in range(3):
        world.sleep(3 * 3600.0)
        (done,) = maintain.targets_of(project, Lake(world.root), BRONZE, [table])  # type: ignore[arg-type]
        expired.append(done.expired)
    assert expired == [6, 0, 0] and done.held == SILVER
    flow.run()
    assert taken(world) == list(range(6))
    (done,) = maintain.targets_of(project, Lake(world.root), BRONZE, [table])  # type: ignore[arg-type]
    assert done.commits == 6 and done.held == ""


def test_a_checkpoint_is_written_once(tmp_path: Path) -> None:
    table = Target(Lake(tmp_path).create(BRONZE, NUMBERS, properties={}))
    for at in range(4):
        table.append([], Identity(BRONZE, 1, at, {}))
    other = Target(table.place)  # each has seen that one is due
    table.checkpoint(1)
    path = delta.checkpoint(table.place.path, table.version)
    before = path.stat()
    other.checkpoint(1)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    other.append([], Identity(BRONZE, 1, 4, {}))
    other.checkpoint(1)
    assert log.checkpoint(table.place.path)[0] == other.version


def test_a_replay_that_was_killed_before_it_staged_anything_leaves_nothing(world: World) -> None:
    topic(world)
    project = Project(6, (SILVER,), lake=world.root)
    context = flows.context_of(world, project, Lake(world.root), ended=(BRONZE,))
    flow = flows.flow_of(context, SILVER)
    intents = IntentFile(Lake(world.root).flow_folder(replay_name(SILVER), SILVER))
    intents.write(Intent(replay_name(SILVER), 1, 0, {}, prefix="replay-"))  # pinned, and no more
    flow.recover()
    left = intents.read()
    assert left is not None and left.sealed


def test_what_is_held_since_is_kept(world: World) -> None:
    table = topic(world)
    path = table.place.path
    assert clean(path, upto=table.version, held=lambda: -1, **soon()).commits == 1  # type: ignore[arg-type]
    assert log.first(path) == 1 and len(files_of(path, table.version)) == 6
    assert clean(path, upto=table.version, **soon()).commits == 5  # type: ignore[arg-type]


def test_who_keeps_what_there_is_waits_for_who_forgets_some(tmp_path: Path) -> None:
    """As each process asked who else is there before the other one was: then one of them is not seen."""
    lake, steps = Lake(tmp_path), list[str]()

    def keep() -> None:
        with past.keeping(lake):
            steps.append("kept")

    def forget() -> None:
        with past.forgetting(Lake(tmp_path)) as may:
            steps.append(f"forgotten: {may}")

    def wait(*others: Callable[[], None]) -> list[threading.Thread]:
        begun = [threading.Thread(target=other) for other in others]
        for thread in begun:
            thread.start()
        time.sleep(0.1)
        return begun

    with past.forgetting(lake) as may:
        assert may
        waiting = wait(keep, keep, forget)
        assert steps == []
    for thread in waiting:
        thread.join()
    assert sorted(steps)[1:] == ["kept", "kept"]
    with past.keeping(lake), past.keeping(lake), past.forgetting(Lake(tmp_path)) as may:
        assert not may
    with past.forgetting(lake) as may:
        assert may


def test_what_is_committed_while_maintenance_stands_still_is_not_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, commits = topic(world), log.commits
    world.sleep(2 * 3600.0)
    rows = pa.table([[6], [0]], schema=NUMBERS)
    written = table.write(rows, f"{6:012d}")

    def stopped(path: Path, **versions: int) -> list[log.Commit]:
        found = list(commits(path, **versions))
        table.append(written, Identity(BRONZE, 1, 6, {}))
        world.sleep(3 * 3600.0)  # the machine is suspended
        return found

    monkeypatch.setattr(log, "commits", stopped)
    assert forget_uncommitted(table.place.path, ()).files == 0
    assert len(table.held(NUMBERS)) == 7


@pytest.mark.parametrize("staged", [None, [""]])
def test_what_a_batch_is_at_work_on_is_not_removed(world: World, staged: list[str] | None) -> None:
    table = topic(world)
    intents = IntentFile(Lake(world.root).flow_folder(BRONZE))
    files = table.write(pa.table([[6], [0]], schema=NUMBERS), f"{6:012d}")
    intent = Intent(BRONZE, 1, 6, {}, staged={BRONZE: files} if staged else None)
    intents.write(intent)
    world.sleep(3 * 3600.0)
    assert forget_uncommitted(table.place.path, [intents], alone=bool(staged)).files == 0
    intents.seal(intent)
    assert forget_uncommitted(table.place.path, [intents]).files == 1


def test_a_batch_of_the_same_number_of_another_flow_keeps_nothing(world: World) -> None:
    table = topic(world)
    other = IntentFile(Lake(world.root).flow_folder(SILVER))
    mine = Committer(table, IntentFile(Lake(world.root).flow_folder(BRONZE)))

    def killed(pinned: Intent) -> Built:
        table.write(pa.table([[6], [0]], schema=NUMBERS), pinned.batch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mine.carry_out(Intent(BRONZE, 1, 6, {}), killed)
    other.write(Intent(SILVER, 1, 6, {}, token="0a1b2c3d"))  # pinned, and then its process was no more
    world.sleep(3 * 3600.0)
    left = mine.unsealed()
    assert left is not None and left.token
    assert forget_uncommitted(table.place.path, [mine._intents, other]).files == 0
    mine._intents.seal(left)
    assert forget_uncommitted(table.place.path, [mine._intents, other]).files == 1


@pytest.mark.parametrize("method", ["by_others", "put_new"])
def test_a_commit_that_was_made_although_it_failed_is_known_to_be_there(tmp_path: Path, method: str) -> None:
    class Lossy(store.Files):
        is_lost = True

        def by_others(self, path: Path, write):  # type: ignore[no-untyped-def]
            return self._lose(write()) if method == "by_others" else write()

        def put_new(self, path: Path, content: bytes) -> None:
            self._lose(super().put_new(path, content))

        def _lose(self, done):  # type: ignore[no-untyped-def]
            if self.is_lost:
                raise OSError(5, "the answer was lost")
            return done

    made = Lake(tmp_path).create(BRONZE, NUMBERS, properties={})
    table, lossy = Target(made), Lossy()
    rows = pa.table([[0], [0]], schema=NUMBERS)
    files, one = table.write(rows, "0"), Identity(BRONZE, 1, 0, {})
    before = store.use(lossy)
    try:
        table = Target.shared(made)
        with pytest.raises(OSError, match="lost"):
            table.append(files, one) if method == "by_others" else table.expire([], times.now())
        lossy.is_lost = False
        for known in (table, Target.shared(made)):
            assert (known.version, known.done(one)) == (1, method == "by_others")
        assert table.append([], Identity(BRONZE, 1, 1, {})) == 2
    finally:
        store.use(before)


def test_a_checkpoint_is_not_written_where_maintenance_wrote_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Target(Lake(tmp_path).create(BRONZE, NUMBERS, properties={}))
    other = Target(table.place)
    for at in range(4):
        table.append([], Identity(BRONZE, 1, at, {}))

    class Meanwhile(store.Files):
        def by_others(self, path: Path, write):  # type: ignore[no-untyped-def]
            store.use(before)
            again.checkpoint(1)
            before_now = times.now() + timedelta(hours=1)
            clean(path, upto=again.version, before=before_now)
            return write()

    again = Target(table.place)
    before = store.use(Meanwhile())
    try:
        other = Target(table.place)
        other.checkpoint(1)
    finally:
        store.use(before)
    assert log.checkpoint(table.place.path)[0] == log.first(table.place.path) == 4


def test_a_lake_that_is_just_being_made_has_not_lost_its_catalog(tmp_path: Path) -> None:
    class Meanwhile(store.Files):
        def find(self, folder: Path, pattern: str) -> list[Path]:
            store.use(before)
            Lake(tmp_path).create(BRONZE, NUMBERS, properties={})
            (tmp_path / "_catalog.json").unlink()
            return super().find(folder, pattern)

    before = store.use(Meanwhile())
    try:
        assert list(Lake(tmp_path).places()) == [BRONZE]
    finally:
        store.use(before)


def test_who_stood_still_while_the_catalogs_log_was_cleaned_reads_what_there_is_now(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked which version is the newest, and reads that one when it is gone."""
    lake = Lake(world.root)
    lake.create(BRONZE, NUMBERS, properties={})
    newest, real = [log.head(lake.catalog)], log.head
    for name in (SILVER, QUARANTINE):
        lake.create(name, ROWS, properties={})
    checksums.checkpoint(lake.catalog)
    clean(lake.catalog, upto=log.head(lake.catalog), before=times.now() + timedelta(hours=1))
    assert log.first(lake.catalog) > newest[0]
    with raises_code("LOG_SHORTENED", file=f"{newest[0]:020d}.json"):
        delta.opened(lake.catalog, newest[0])
    monkeypatch.setattr(log, "head", lambda table: newest.pop() if newest else real(table))
    assert {*Lake(world.root).places()} == {BRONZE, SILVER, QUARANTINE}


def test_a_version_whose_entries_are_being_cleaned_is_gone_and_not_damaged(world: World) -> None:
    table = topic(world).place.path
    for gone in range(3):
        delta.entry(table, gone).unlink()
    with raises_code("LOG_SHORTENED", match="version 4 is gone"):
        delta.opened(table, 4)
    assert delta.opened(table).version() == 6
    delta.checkpoint(table, 6).write_bytes(b"no Parquet")
    with raises_code("LOG_DAMAGED"):
        delta.opened(table, 4)


@pytest.mark.parametrize("when", ["while the log is copied", "while files are"])
def test_a_table_is_copied_although_its_log_is_cleaned_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    table = Target(Lake(tmp_path / "lake").create(SILVER, NUMBERS, properties={}))
    for at in range(6):
        rows = pa.table([[at], [0]], schema=NUMBERS)
        table.append(table.write(rows, f"{at:012d}"), Identity(SILVER, 1, at, {}))
    path, into, real = table.place.path, tmp_path / "copy", shutil.copy2
    table.checkpoint(1)
    cleaned = list[int]()

    def copied(source: Path, to: Path) -> object:
        if not cleaned and (source.parent.name == delta.LOG) == when.startswith("while the log"):
            cleaned.append(clean(path, upto=6, before=times.now() + timedelta(hours=1)).commits)
        return real(source, to)

    monkeypatch.setattr(shutil, "copy2", copied)
    tables.take(path, 6, into, full=True)
    assert cleaned == [6]
    assert sorted(delta.opened(into).to_pyarrow_table()["offset"].to_pylist()) == [*range(6)]
    assert log.first(into) == (6 if when.startswith("while the log") else 0)
    checksums.check(into)


@pytest.mark.parametrize("begins", [11, 22])
def test_a_copy_has_the_files_of_every_version_that_its_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: int
) -> None:
    """Files are put together twice, and cleaned while they are copied, up to an older checkpoint or a new."""
    table = Target(Lake(tmp_path / "lake").create(SILVER, NUMBERS, properties={}))
    path, into, real = table.place.path, tmp_path / "copy", shutil.copy2
    for at in range(20):
        rows = pa.table([[at], [0]], schema=NUMBERS)
        table.append(table.write(rows, f"{at:012d}"), Identity(SILVER, 1, at, {}))
        if at in (9, 19):
            compact(table, None)
            if begins == 11:
                table.checkpoint(1)
    cleaned = list[int]()

    def copied(source: Path, to: Path) -> object:
        if not cleaned and source.parent.name != delta.LOG:
            table.checkpoint(1)
            cleaned.append(clean(path, upto=22, before=times.now() + timedelta(hours=1)).commits)
        return real(source, to)

    monkeypatch.setattr(shutil, "copy2", copied)
    tables.take(path, 22, into, full=True)
    assert cleaned == [22] and log.first(into) == begins
    for version in range(begins, 23):
        found = delta.opened(into, version).to_pyarrow_table()["offset"].to_pylist()
        assert sorted(found) == [*range(version - (version > 10) - (version == 22))]
    checksums.check(into)
    if begins == 22:  # nothing lies there that no version has
        assert set(into.glob("[!_]*/*.parquet")) == {*map(Path, delta.files(into))}


def test_a_copy_has_what_was_put_together_since(tmp_path: Path) -> None:
    table = Target(Lake(tmp_path / "lake").create(SILVER, NUMBERS, properties={}))
    path, copies = table.place.path, [tmp_path / "copy", tmp_path / "later"]
    for at in range(20):
        rows = pa.table([[at], [0]], schema=NUMBERS)
        table.append(table.write(rows, f"{at:012d}"), Identity(SILVER, 1, at, {}))
        if at == 9:
            compact(table, None)
            table.checkpoint(1)
    compact(table, None)
    tables.take(path, table.version, copies[0])
    clean(path, upto=table.version, before=times.now() + timedelta(hours=1))
    tables.take(path, table.version, copies[1])
    for into in copies:
        for version in range(log.first(into), table.version + 1):
            found = delta.opened(into, version).to_pyarrow_table()["offset"].to_pylist()
            assert sorted(found) == [*range(version - (version > 10) - (version == table.version))]
    assert [log.first(into) for into in copies] == [0, 11]


def test_what_is_dropped_is_gone_although_another_process_starts_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Lake(tmp_path).create(SILVER, ROWS, properties={})
    another = threading.Thread(target=lambda: Lake(tmp_path).finish())

    def started(step: str, flow: str) -> None:
        if step == "noted":
            another.start()
            another.join(timeout=1.0)  # it ends, or it waits for the drop

    monkeypatch.setattr(failpoints, "reach", started)
    Lake(tmp_path).drop([SILVER], [])
    another.join()
    Lake(tmp_path).finish()
    assert not place.path.exists() and not list(tmp_path.glob("_drop.*"))


def test_a_lease_that_can_not_be_noted_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Channel:
        is_open = True

        def tryLock(self) -> object:  # noqa: N802
            return self

        def close(self) -> None:
            self.is_open = False

    made: list[Channel] = []
    monkeypatch.setattr(lease, "_channel", lambda path: made.append(Channel()) or made[-1])
    monkeypatch.setattr(lease.jvm, "pid", lambda: 0)

    def full(self: object, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(store._Flock, "note", full)
        with pytest.raises(OSError, match="No space"):
            Lease(SILVER, tmp_path)
    assert not made[0].is_open
    mine = Lease(SILVER, tmp_path)
    with raises_code("LEASE_HELD", table=SILVER, file=tmp_path / "lease"):
        Lease(SILVER, tmp_path)
    mine.release()


def test_a_table_that_was_made_anew_and_has_grown_is_another_one(world: World) -> None:
    table = topic(world)
    read = ranges.after(table.place.path, 1, 3)
    assert ranges.is_as_read(table.place.path, read)
    shutil.rmtree(table.place.path)
    assert topic(world).version == 6
    assert not ranges.is_as_read(table.place.path, read)


def test_a_swap_of_several_tables_is_one_commit(world: World) -> None:
    lake = Lake(world.root)
    places = {name: lake.create(name, ROWS, properties={}) for name in (SILVER, QUARANTINE)}
    before = log.head(lake.catalog)
    following = {name: replace(place, generation=2) for name, place in places.items()}
    lake.swap(following)
    assert log.head(lake.catalog) == before + 1
    assert {place.generation for place in Lake(world.root).places().values()} == {2}


@pytest.mark.parametrize("times_over", [1, 99], ids=["once", "for ever"])
def test_who_opens_a_table_while_its_log_is_cleaned_lists_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times_over: int
) -> None:
    """Its entries were listed before a checkpoint was made, and are gone when they are read."""
    table = Target(Lake(tmp_path).create(SILVER, NUMBERS, properties={}))
    for at in range(6):
        rows = pa.table([[at], [0]], schema=NUMBERS)
        table.append(table.write(rows, f"{at:012d}"), Identity(SILVER, 1, at, {}))
    path, real, failed = table.place.path, delta.DeltaTable, list[str]()
    table.checkpoint(1)
    for each in range(3):
        delta.entry(path, each).unlink()

    def cleaned_meanwhile(at: Path, version: int | None = None) -> delta.DeltaTable:
        if len(failed) < times_over:
            failed.append(f"Kernel error: File not found: {delta.entry(path, 1)}")
            raise delta.DeltaError(failed[-1])
        return real(at, version=version)

    monkeypatch.setattr(delta, "DeltaTable", cleaned_meanwhile)
    if times_over == 1:
        assert delta.opened(path).to_pyarrow_table().num_rows == 6
    else:
        with raises_code("LOG_DAMAGED", match="File not found"):
            delta.opened(path)
        assert len(failed) == 6
