"""Lookups: rows are told what is known when they come, and stay with it."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from postgres import Server
from pyspark.sql import SparkSession
from raising import raises_code
from test_final import seeded

from headwater.common import arrow
from headwater.connectors import lookups
from headwater.connectors.lookups.postgres import PostgresAsker
from headwater.errors import NOWHERE, FlowError, LookupUnavailable, Where
from headwater.flows import ranged
from headwater.flows.run_queue import RunQueue
from headwater.operations import erase, maintain, savepoints
from headwater.operations.maintain.compact import compact
from headwater.operations.rebuild import rebuild
from headwater.operations.rebuild.reconcile import reconcile
from headwater.operations.replay import resolve
from headwater.planner import explained
from headwater.planner.changes import plan
from headwater.testing import Project, Record, apply

SHOPS = ("Bern", "Oslo", "Rome", "Zug")
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": 'import headwater as hw\norders = hw.topic("orders")\n',
    "silver/shops.py": """
import json
from pathlib import Path

import headwater as hw

HERE = Path(__file__).parent

def fetch(keys):
    with (HERE / "asked").open("a") as asked:
        asked.write("".join(f"{key['shop']}\\n" for key in keys))
    known = json.loads((HERE / "known").read_text())
    return [{**key, **known[key["shop"]]} for key in keys if key["shop"] in known]

shops = hw.lookup(fetch, keys="shop", columns="kind STRING, size INT", ttl="10 minutes", batch_size=3)
""",
    "silver/orders.sql": "CREATE STREAMING TABLE orders TBLPROPERTIES ('headwater.decode' = 'json', "
    "'headwater.schema' = 'nr INT, shop STRING, amount INT', 'headwater.lookup' = 'shops') AS "
    "SELECT nr, kind, size, _source FROM STREAM bronze.orders WHERE amount > 0",
    "quality/silver.orders.json": json.dumps(
        {
            "name": "silver.orders",
            "expectations": [
                {
                    "type": "expect_column_values_to_be_between",
                    "kwargs": {"column": "nr", "min_value": 0},
                    "meta": {"action": "quarantine"},
                }
            ],
        }
    ),
}
Row = dict[str, Any]


class Shops:
    """What the lookup of a project asks: files beside it."""

    def __init__(self, project: Project) -> None:
        self._known, self._asked = project.root / "silver/known", project.root / "silver/asked"
        self.now: dict[str, Row] = {}

    def say(self, **known: Row) -> None:
        """Let this be known from now on."""
        self.now = known
        self._known.write_text(json.dumps(known))

    def fail(self) -> None:
        """Give no answers from now on."""
        self._known.unlink()

    def asked(self) -> list[str]:
        """What was asked since this was called last."""
        found = self._asked.read_text().split() if self._asked.exists() else []
        self._asked.unlink(missing_ok=True)
        return sorted(found)


def order(nr: int, shop: str | None, partition: int = 0, amount: int = 1) -> Record:
    return Record({"nr": nr, "shop": shop, "amount": amount}, partition=partition)


BERN, OSLO = {"kind": "kiosk", "size": 1}, {"kind": "mall", "size": 9}


def told(project: Project) -> dict[int, tuple[Any, Any]]:
    """{order → what it was told}."""
    rows = project.rows("silver.orders", "nr, kind, size")
    found = {nr: (kind, size) for nr, kind, size in rows}
    assert len(found) == len(rows)
    return found


def test_rows_are_told_what_is_known_when_they_come(interpreted: SparkSession, tmp_path: Path) -> None:
    project = Project(FILES, tmp_path, spark=interpreted, at="2026-01-01T00:00:00Z")
    shops = Shops(project)
    shops.say(Bern=BERN)
    project.send("orders", [order(0, "Bern"), order(1, "Oslo"), order(2, None), order(3, "Bern", 1)]).step()
    assert told(project) == {0: ("kiosk", 1), 1: (None, None), 2: (None, None), 3: ("kiosk", 1)}
    assert shops.asked() == ["Bern", "Oslo"]
    shops.say(Bern=BERN, Oslo=OSLO)
    project.clock.advance("9 minutes")
    project.send("orders", [order(4, "Oslo")]).step()
    assert (told(project)[4], shops.asked()) == ((None, None), [])  # that nothing is known holds as well
    project.clock.advance("2 minutes")
    project.send("orders", [order(5, "Oslo"), order(6, "Bern", 1)]).step()
    assert (told(project)[5], told(project)[6]) == (("mall", 9), ("kiosk", 1))
    assert shops.asked() == ["Bern", "Oslo"]
    lines = project.rows("silver.orders__lookup", "shop, kind, _known, _source.partition, _source.offset")
    assert sorted(map(str, lines)) == sorted(
        map(
            str,
            [
                ("Bern", "kiosk", True, 0, 0),
                ("Oslo", None, False, 0, 1),
                ("Bern", "kiosk", True, 1, 0),
                ("Oslo", "mall", True, 0, 4),
            ],
        )
    )  # what is known of Bern is as it was, so no line says it again


def test_a_table_waits_for_an_answer_and_loses_nothing(interpreted: SparkSession, tmp_path: Path) -> None:
    project = Project(FILES, tmp_path, spark=interpreted)
    shops = Shops(project)
    project.send("orders", [order(0, "Bern")])
    with pytest.raises(LookupUnavailable, match=r"silver.shops gave no answer: .*known"):
        project.step()
    assert project.rows("silver.orders") == []
    shops.say(Bern=BERN)
    project.restart().step()
    assert told(project) == {0: ("kiosk", 1)}
    shops.fail()
    project.send("orders", [order(1, "Bern")]).step()  # it is held in memory
    assert told(project)[1] == ("kiosk", 1)


def test_others_work_while_a_lookup_is_asked(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, queue, ask = Project(FILES, tmp_path, spark=interpreted), RunQueue(1, long=600), lookups.ask
    project._context = replace(project.context, queue=queue)
    Shops(project).say(Bern=BERN)

    def work() -> None:
        with queue.turn():
            pass

    def slow(*asked: Any) -> Any:
        other = Thread(target=work, daemon=True)
        other.start()
        other.join(60)
        assert not other.is_alive()
        return ask(*asked)

    monkeypatch.setattr(lookups, "ask", slow)
    project.send("orders", [order(0, "Bern")])
    with queue.turn():
        project.step()
    assert told(project) == {0: ("kiosk", 1)}


@pytest.mark.parametrize("few", [True, False], ids=["in memory", "by Spark"])
def test_what_rows_were_told_stays(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    draw = seeded(random.randrange(2**32))
    monkeypatch.setattr(sys.modules[compact.__module__], "FEWEST", 2)
    if not few:
        monkeypatch.setattr(ranged, "are_few", lambda files, rows: False)
        monkeypatch.setattr(ranged, "can_be_held", lambda files, rows: False)
    project = Project(FILES, tmp_path, spark=interpreted)
    shops, was, nr = Shops(project), dict[int, Any](), 0
    for turn in range(6):
        some = draw.sample(SHOPS, draw.randint(0, 4))
        shops.say(**{shop: {"kind": f"k{turn}", "size": draw.randint(1, 2)} for shop in some})
        if draw.random() < 0.5:
            project.clock.advance("11 minutes")
        if draw.random() < 0.3:
            project.restart()
        for _ in range(draw.randint(1, 3)):
            records = []
            for _ in range(draw.randint(1, 12)):
                shop = draw.choice([*SHOPS, None])
                kind = draw.random()
                records.append(order(-nr if kind < 0.1 else nr, shop, draw.randint(0, 1), int(kind < 0.9)))
                nr += 1
            project.send("orders", [*records, b"no JSON"])
            if draw.random() < 0.5:
                project.step()
        project.step()
        if draw.random() < 0.3:
            maintain.maintain(project.definitions)
        assert all(told(project)[nr] == known for nr, known in was.items())
        was = told(project)
    shops.say()
    shops.asked()
    (found,) = reconcile(project.definitions, ["silver.orders"])
    assert found.same and found.rows, found
    rebuild(project.definitions, ["silver.orders"])
    project.restart()
    assert (told(project), shops.asked()) == (was, [])
    lines = project.rows("silver.orders__lookup")
    rebuild(project.definitions, ["silver.orders"], verify=True)
    project.restart()
    assert (told(project), shops.asked()) == (was, [])
    assert sorted(map(str, lines)) == sorted(map(str, project.rows("silver.orders__lookup")))
    project.change("quality/silver.orders.json", '"min_value": 0', '"min_value": -1000')
    resolve(project.definitions, "silver.orders", "replay")
    replayed = told(project)
    assert {**replayed, **was} == replayed
    project.send("orders", [order(1_000, "Bern")]).step()
    (found,) = reconcile(project.definitions, ["silver.orders"])
    assert found.same, found
    rebuild(project.definitions, ["silver.orders"])
    assert told(project) == {**replayed, 1_000: (None, None)}
    shops.say(**dict.fromkeys(SHOPS, OSLO))
    rebuild(project.definitions, ["silver.orders"], fresh_lookups=True)
    assert {*told(project.restart()).values()} <= {("mall", 9), (None, None)}
    assert shops.asked()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{}", "gave a row without kind, size"),
        ('{"kind": "a", "size": "many"}', "many"),
        ('{"kind": "a", "size": 1.5}', "column size: 1.5 is no whole number"),
        ('{"kind": 2, "size": 1}', "column kind: .*int"),
        ("None", "gave no answer"),
    ],
)
def test_an_answer_that_is_none(interpreted: SparkSession, tmp_path: Path, said: str, why: str) -> None:
    fetch = f'return [{{"shop": key["shop"], **{said}}} for key in keys]'
    files = {**FILES, "silver/shops.py": FILES["silver/shops.py"].split("    with")[0] + f"    {fetch}\n"}
    files["silver/shops.py"] += (
        'shops = hw.lookup(fetch, keys="shop", columns="kind STRING, size INT", ttl="1s")'
    )
    project = Project(files, tmp_path, spark=interpreted).send("orders", [order(0, "Bern")])
    with pytest.raises((FlowError, LookupUnavailable), match=why):
        project.step()


@pytest.mark.parametrize(
    ("file", "old", "new", "code"),
    [
        ("silver/shops.py", 'keys="shop"', 'keys="store"', "LOOKUP_COLUMNS_INVALID"),
        ("silver/shops.py", "kind STRING", "amount STRING", "LOOKUP_COLUMNS_INVALID"),
        ("silver/shops.py", "kind STRING", "kind NONE", "DDL_INVALID"),
        ("silver/shops.py", "10 minutes", "a while", "INTERVAL_INVALID"),
        ("silver/shops.py", "batch_size=3", "batch_size=0", "PROPERTY_INVALID"),
        ("silver/shops.py", "hw.lookup(fetch", 'hw.lookup(hw.from_postgres("a", "b")', "UNKNOWN_CONNECTION"),
        ("silver/orders.sql", "'shops'", "'shop'", "UNKNOWN_SOURCE"),
    ],
)
def test_what_a_lookup_can_not_be(
    interpreted: SparkSession, tmp_path: Path, file: str, old: str, new: str, code: Any
) -> None:
    files = {**FILES, file: FILES[file].replace(old, new)}
    with raises_code(code):
        _ = Project(files, tmp_path, spark=interpreted).tables


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("STREAMING TABLE", "SELECT shop, count(*) AS n FROM STREAM silver.plain GROUP BY shop"),
        ("MATERIALIZED VIEW", "SELECT DISTINCT shop FROM silver.plain"),
    ],
)
def test_what_has_no_lookup(interpreted: SparkSession, tmp_path: Path, kind: str, query: str) -> None:
    sql = f"CREATE {kind} sums TBLPROPERTIES ('headwater.lookup' = 'silver.shops') AS {query}"
    plain = (
        FILES["silver/orders.sql"]
        .replace("orders TBL", "plain TBL")
        .replace(", 'headwater.lookup' = 'shops'", "")
        .replace("kind, size", "shop")
    )
    files = {**FILES, "silver/plain.sql": plain, "gold/sums.sql": sql}
    with raises_code("LOOKUP_NOT_OF_ROWS"):
        _ = Project(files, tmp_path, spark=interpreted).tables


def test_a_definition_is_tried_with_given_answers(interpreted: SparkSession, tmp_path: Path) -> None:
    project = Project(FILES, tmp_path, spark=interpreted)
    given = {
        "bronze.orders": [{"nr": 1, "shop": "Bern", "amount": 2}, {"nr": 2, "shop": "Oslo", "amount": 2}],
        "silver.shops": [{"shop": "Bern", **BERN}],
    }
    found = apply(project, "silver.orders", given).rows
    assert [(row["nr"], row["kind"]) for row in found] == [(1, "kiosk"), (2, None)]
    assert Shops(project).asked() == []


def test_so_is_one_of_rows_that_do_not_say_where_they_are_from(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    plain = FILES["silver/orders.sql"].replace("orders TBL", "plain TBL")
    plain = plain.replace(", 'headwater.lookup' = 'shops'", "").replace("kind, size", "shop")
    told = "CREATE STREAMING TABLE told TBLPROPERTIES ('headwater.lookup' = 'silver.shops') AS "
    told += "SELECT nr, kind, _source FROM STREAM silver.plain"
    project = Project(
        {**FILES, "silver/plain.sql": plain, "gold/told.sql": told}, tmp_path, spark=interpreted
    )
    rows = [{"nr": nr, "shop": shop} for nr, shop in enumerate(("Bern", "Oslo", None, "Bern"))]
    found = apply(
        project, "gold.told", {"silver.plain": rows, "silver.shops": [{"shop": "Bern", **BERN}]}
    ).rows
    assert [(row["nr"], row["kind"]) for row in found] == [(0, "kiosk"), (1, None), (2, None), (3, "kiosk")]


class _Shops(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = json.dumps([{**key, "kind": key["shop"].lower(), "size": 3} for key in asked]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Shops) as made:
        thread = Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/shops"
        made.shutdown()


def test_a_lookup_over_http(interpreted: SparkSession, tmp_path: Path, server: str) -> None:
    file = f'''
import json
from urllib.request import Request, urlopen

import headwater as hw

def fetch(keys):
    asked = Request("{server}", json.dumps(keys).encode(), method="POST")
    with urlopen(asked, timeout=5) as answer:
        return json.load(answer)

shops = hw.lookup(fetch, keys=["shop"], columns="kind STRING, size INT", ttl="1 hour")
'''
    project = Project({**FILES, "silver/shops.py": file}, tmp_path, spark=interpreted)
    project.send("orders", [order(nr, shop) for nr, shop in enumerate(SHOPS)]).step()
    assert told(project) == {nr: (shop.lower(), 3) for nr, shop in enumerate(SHOPS)}


POSTGRES = """
import headwater as hw

shops = hw.lookup(
    hw.from_postgres("warehouse", "trade.shops"),
    keys=["shop", "amount"],
    columns="kind STRING, size INT",
    ttl="1 second",
)
"""


def test_a_lookup_in_postgresql(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server() as server:
        server.rows(
            "CREATE SCHEMA trade; CREATE TABLE trade.shops (shop varchar, amount int, kind text, size int8); "
            "INSERT INTO trade.shops VALUES ('Bern', 1, 'kiosk', 7), ('Bern', 2, 'mall', 8)"
        )
        monkeypatch.setenv("WAREHOUSE_PASSWORD", str(server.options["password"]))
        connection = json.dumps({"warehouse": {**server.options, "password": "env:WAREHOUSE_PASSWORD"}})
        conf = f"kafka: embedded\npostgres: {connection}\n"
        files = {**FILES, "conf/local.yaml": conf, "silver/shops.py": POSTGRES}
        project = Project(files, tmp_path, spark=interpreted)
        asked = [order(nr, "Bern", amount=nr) for nr in range(1, 4)]
        project.send("orders", [*asked, order(9, "Be\0rn")]).step()
        assert told(project) == {1: ("kiosk", 7), 2: ("mall", 8), 3: (None, None), 9: (None, None)}
        server.stop()
        project.clock.advance("2 seconds")
        project.send("orders", [order(4, "Bern")])
        with pytest.raises(LookupUnavailable, match=r"silver.shops asks PostgreSQL for trade.shops"):
            project.step()
        server.start()
        project.step()
        assert told(project)[4] == ("kiosk", 7)
        monkeypatch.setattr("headwater.connectors.lookups.postgres._PATIENCE", 0.5)
        project.clock.advance("2 seconds")
        project.send("orders", [order(6, "Bern", amount=2)])
        with psycopg.connect(**server.options) as locked:  # type: ignore[arg-type]
            locked.execute("LOCK TABLE trade.shops")
            with pytest.raises(LookupUnavailable, match=r"trade.shops: no answer within 0.5 s"):
                project.step()
        project.step()
        assert told(project)[6] == ("mall", 8)
        server.rows("ALTER TABLE trade.shops RENAME COLUMN kind TO sort")
        project.clock.advance("2 seconds")
        project.send("orders", [order(5, "Bern")])
        with raises_code("LOOKUP_REFUSED", match="kind"):
            project.step()
    off = {**files, "conf/local.yaml": "kafka: embedded\npostgres: {warehouse: off}\n"}
    project.write(off).step()
    assert told(project)[5] == (None, None)
    assert len(project.rows("silver.orders__lookup")) == 4


def test_postgresql_is_asked_by_whatever_names_it_has() -> None:
    with Server() as server:
        server.rows(
            'CREATE TABLE "a%b" ("net %s" text, "share %" int); '
            """INSERT INTO "a%b" VALUES ('x', 7), ('%s', 8)"""
        )
        asked = PostgresAsker(NOWHERE, server.options, "public.a%b", {"net %s": pa.string()}, ["share %"])
        found = asked([{"net %s": "x"}, {"net %s": "%s"}, {"net %s": "y"}])
        assert sorted(found, key=repr) == [{"net %s": "%s", "share %": 8}, {"net %s": "x", "share %": 7}]
        asked.close()


def test_a_time_that_only_postgresql_has_is_told_by_its_column() -> None:
    where = Where.of(Path("silver/shops.py"), "silver.shops")
    kinds = ("timestamptz", "timestamp", "date", "timestamptz[]")
    with Server() as server:
        for kind, beyond in product(kinds, ("infinity", "-infinity", "0044-03-15 BC")):
            value = f"{{{beyond}}}" if "[" in kind else beyond
            server.rows(
                f"DROP TABLE IF EXISTS shops; CREATE TABLE shops (shop text, kind text, until {kind}); "
                f"INSERT INTO shops VALUES ('Bern', 'kiosk', '{value}'), ('Rome', 'mall', NULL)"
            )
            asked = PostgresAsker(where, server.options, "shops", {"shop": pa.string()}, ["kind", "until"])
            assert [*asked([{"shop": "Rome"}])] == [{"shop": "Rome", "kind": "mall", "until": None}]
            with raises_code("LOOKUP_ANSWER_INVALID") as refused:
                asked([{"shop": "Rome"}, {"shop": "Bern"}])
            asked.close()
            said = "silver.shops asks PostgreSQL for shops: its column until has "
            assert f"{said}{beyond.partition(' ')[0]}" in str(refused.value)
            assert "ask a view" in (refused.value.hint or "")


def test_a_plan_says_what_another_lookup_means(interpreted: SparkSession, tmp_path: Path) -> None:
    project = Project(FILES, tmp_path, spark=interpreted)
    shops = Shops(project)
    shops.say(Bern=BERN)
    project.send("orders", [order(0, "Bern")]).step()
    context = project.context
    assert explained.explain(context.spark, context.project, ["silver.orders"])[0].lookup == (
        "asks silver.shops by shop, again after 10 minutes"
    )
    project.change("silver/shops.py", "10 minutes", "1 hour")
    found = plan(project.definitions, ["silver.orders"])[-1]
    assert found.verdict.effect == "unchanged"
    project.change("silver/shops.py", "size INT", "size INT, city STRING")
    found = plan(project.definitions, ["silver.orders"])[-1]
    assert found.verdict.effect == "rebuild" and "city STRING" in found.verdict.why[0]


def test_answers_are_kept_like_other_tables(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance puts their files together; they come back from a savepoint; those of erased records go."""
    monkeypatch.setattr(sys.modules[compact.__module__], "FEWEST", 2)
    files = {**FILES, "conf/local.yaml": "kafka: embedded\nmaintain: {keep: 0s}\n"}
    project = Project(files, tmp_path, spark=interpreted)
    shops = Shops(project)
    for turn in range(4):
        shops.say(Bern={"kind": f"k{turn}", "size": 1}, Oslo=OSLO)
        project.send("orders", [order(2 * turn, "Bern"), order(2 * turn + 1, "Oslo")]).step()
        project.clock.advance("11 minutes")
    maintain.maintain(project.definitions)
    was = told(project.restart())
    assert was == {nr: ("mall", 9) if nr % 2 else (f"k{nr // 2}", 1) for nr in range(8)}
    savepoints.create(project.definitions, "before")
    shops.say(Bern=OSLO)
    project.send("orders", [order(8, "Bern"), order(9, "Zug")]).step()
    after = told(project)
    savepoints.restore(project.definitions, "before")
    assert told(project.restart()) == was
    shops.asked()
    assert told(project.step()) == after and shops.asked() == ["Bern", "Zug"]
    savepoints.drop(project.lake, "before")
    definitions = project.definitions
    erase.erase(definitions, erase.look(definitions, "silver.orders", "shop = 'Bern'"))
    project.restart().step()
    assert told(project) == {nr: known for nr, known in after.items() if nr % 2}
    assert {*project.rows("silver.orders__lookup", "shop")} == {("Oslo",), ("Zug",)}
    assert shops.asked() == []


@pytest.mark.parametrize(
    ("few", "most"), [(True, 99), (False, 99), (True, 1)], ids=["in memory", "by Spark", "file by file"]
)
def test_who_shared_an_answer_with_an_erased_record_keeps_it(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool, most: int
) -> None:
    if not few:
        monkeypatch.setattr(ranged, "are_few", lambda files, rows: False)
        monkeypatch.setattr(ranged, "can_be_held", lambda files, rows: False)
    conf = f"kafka: embedded\nmax_rows_per_batch: {most}\n"
    project = Project({**FILES, "conf/local.yaml": conf}, tmp_path, spark=interpreted)
    shops = Shops(project)
    for turn, of_bern in enumerate([2, 3, 1, 2]):
        shops.say(Bern={"kind": f"k{turn}", "size": turn}, Oslo=OSLO)
        sent = [order(10 * turn + nr, "Bern") for nr in range(of_bern)]
        project.send("orders", [*sent, order(10 * turn + 9, "Oslo")]).step()
        project.clock.advance("11 minutes")
    was, definitions = told(project), project.definitions
    gone = {0, 10, 11, 20}  # who was told first, in one turn the only one that was
    shops.say()
    shops.asked()
    erase.erase(definitions, erase.look(definitions, "silver.orders", f"nr IN {tuple(gone)}"))
    project.restart()
    assert told(project) == {nr: known for nr, known in was.items() if nr not in gone}
    lines = project.rows("silver.orders__lookup", "shop, kind, _source.offset")
    assert sorted(lines) == [("Bern", "k0", 1), ("Bern", "k1", 5), ("Bern", "k3", 9), ("Oslo", "mall", 2)]
    (found,) = reconcile(definitions, ["silver.orders"])
    assert found.same and rebuild(definitions, ["silver.orders"], verify=True).swapped
    assert shops.asked() == []


def test_an_answer_is_taken_as_it_is_or_not_at_all() -> None:
    kinds = pa.struct(
        [("n", pa.int64()), ("x", pa.float64()), ("day", pa.date32()), ("ns", pa.list_(pa.int32()))]
    )
    day = datetime(2026, 1, 2)
    said = {"n": Decimal("2.0"), "x": Decimal("1.50"), "day": day, "ns": [1.0, None]}
    assert arrow.exact(said, kinds) == {"n": 2, "x": 1.5, "day": day.date(), "ns": [1, None]}
    for wrong in ({"n": 0.5}, {"ns": [1, 1.5]}, {"day": day.replace(hour=1)}, {"m": 1}, {"n": float("nan")}):
        with pytest.raises(ValueError, match=r"no whole number|no date|unknown|NaN"):
            arrow.exact({**said, **wrong}, kinds)
