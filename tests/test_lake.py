"""The lake's catalog: tables are made and registered once, whoever makes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from raising import raises_code

from headwater.storage import log
from headwater.storage.lake import Lake

COLUMNS = pa.schema([("n", pa.int64())])

MAKER = """
import os, sys
from pathlib import Path
import pyarrow as pa
from headwater.storage.lake import Lake
lake = Lake(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for name in sys.argv[2:]:
    lake.create(name, pa.schema([("n", pa.int64())]), properties={})
os._exit(0)  # pyarrow's threads may abort an interpreter that ends as usual
"""


def test_a_table_is_made_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert lake.places() == {}
    place = lake.create("silver.t", COLUMNS, comment="Readings", properties={"delta.appendOnly": "true"})
    assert (place.name, place.generation) == ("silver.t", 1)
    assert place.path == tmp_path / "lake" / "silver" / "t" / "g0001"
    assert (
        lake.create("silver.t", COLUMNS, properties={}) == place == Lake(tmp_path / "lake").place("silver.t")
    )
    metadata = DeltaTable(place.path).metadata()
    assert (metadata.name, metadata.description) == ("silver.t", "Readings")
    assert metadata.configuration["delta.appendOnly"] == "true"
    assert log.head(place.path) == 0


def test_a_table_that_is_not_written_says_how_to_fill_it(tmp_path: Path) -> None:
    with raises_code(
        "TABLE_EMPTY",
        table="silver.t",
        match=r"silver\.t holds nothing yet.*run: headwater run silver\.t --once",
    ):
        Lake(tmp_path).place("silver.t")


def test_a_lake_sees_what_another_made(tmp_path: Path) -> None:
    one, other = Lake(tmp_path), Lake(tmp_path)
    assert one.places() == other.places() == {}
    one.create("silver.a", COLUMNS, properties={})
    other.create("silver.b", COLUMNS, properties={})
    assert set(one.places()) == set(other.places()) == {"silver.a", "silver.b"}


def test_a_table_that_was_made_but_not_registered_is_registered(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create("silver.first", COLUMNS, properties={})
    DeltaTable.create(tmp_path / "silver" / "t" / "g0001", schema=COLUMNS)  # a kill came here
    place = lake.create("silver.t", COLUMNS, properties={})
    assert Lake(tmp_path).place("silver.t") == place and log.head(place.path) == 0


def test_a_lake_can_be_moved(tmp_path: Path) -> None:
    Lake(tmp_path / "a").create("silver.t", COLUMNS, properties={})
    (tmp_path / "a").rename(tmp_path / "b")
    place = Lake(tmp_path / "b").place("silver.t")
    assert place.path == tmp_path / "b" / "silver" / "t" / "g0001" and log.exists(place.path)


def race(lake: Path, *names: list[str]) -> None:
    """Let processes make tables at the same time."""
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKER, str(lake), *mine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for mine in names
    ]
    for maker in makers:
        assert maker.stdout is not None and maker.stdout.readline() == "ready\n"
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("\n")
        maker.stdin.flush()
    for maker in makers:
        _, errors = maker.communicate(timeout=60)
        assert maker.returncode == 0, errors


def test_two_processes_register_their_tables(tmp_path: Path) -> None:
    one, other = ([f"silver.{who}{n}" for n in range(12)] for who in "ab")
    race(tmp_path, one, other)
    assert set(Lake(tmp_path).places()) == {*one, *other}
    assert len(DeltaTable(tmp_path / "_catalog").to_pyarrow_table()) == 24


def test_two_processes_register_the_same_tables_once(tmp_path: Path) -> None:
    names = [f"silver.t{n}" for n in range(20)]
    race(tmp_path, names, names)
    rows = DeltaTable(tmp_path / "_catalog").to_pyarrow_table().to_pylist()
    assert sorted(row["name"] for row in rows) == sorted(names)
    assert all(log.head(place.path) == 0 for place in Lake(tmp_path).places().values())


def test_a_table_that_left_the_catalog_is_made_anew_and_not_taken_up_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    first = lake.create("silver.t", COLUMNS, properties={})
    write_deltalake(first.path, pa.table({"n": [1]}), mode="append")
    lake.swap({}, without=["silver.t"])
    again = lake.create("silver.t", COLUMNS, properties={})
    assert (again.generation, log.head(again.path)) == (2, 0) and again.id != first.id
    assert lake.create("silver.t", COLUMNS, properties={}) == again
