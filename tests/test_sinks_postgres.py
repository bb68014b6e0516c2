"""A table in PostgreSQL: each change once, whatever comes again; and what does not fit is refused."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from batches import BEYOND, KINDS, beyond, changes, cut_anyhow, published
from postgres import PASSWORD, Server
from raising import raises_code

from headwater.common.wait import until
from headwater.connectors.postgres import may_pass
from headwater.connectors.postgres_types import takes
from headwater.connectors.sinks import Position, Published
from headwater.connectors.sinks import postgres as sinks_postgres
from headwater.connectors.sinks.postgres import PostgresTable

INTO = "gold.usage"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture(autouse=True)
def empty(server: Server) -> None:
    server.rows("DROP SCHEMA IF EXISTS gold CASCADE")


def opened(server: Server, table: Published | None = None) -> tuple[PostgresTable, Position]:
    sink = PostgresTable(server.options, INTO)
    return sink, sink.open(table or published())


def test_rows_are_upserted_and_deleted_by_key_and_a_batch_again_changes_nothing(
    server: Server,
) -> None:
    sink, at = opened(server)
    assert at == Position(0, -1)
    batch = changes(
        [("upsert", "a", 1, 1.0), ("upsert", None, 2, 2.0), ("upsert", "c", None, 3.0)],
        [("upsert", "a", 1, 10.0), ("delete", "c", None, 3.0)],
        [("upsert", "c", None, 5.0), ("upsert", None, 2, None)],
    )
    sink.write(batch)
    want = [("a", 1, 10.0), ("c", None, 5.0), (None, 2, None)]
    assert server.rows("SELECT * FROM gold.usage ORDER BY host") == want
    sink.write(batch)
    assert server.rows("SELECT * FROM gold.usage ORDER BY host") == want
    # It begins before what the table has: only the last version is new.
    longer = changes([("delete", "a", 1, 0.0)], [("upsert", "z", 9, 0.0)], [("delete", "a", 1, 0.0)], first=2)
    sink.write(longer)
    assert server.rows("SELECT * FROM gold.usage ORDER BY host") == want[1:]
    sink.close()
    again, at = opened(server)
    assert at == Position(1, 4) and at.committed == 4_000
    again.close()


def test_positions_that_do_not_say_when_they_were_committed_are_taken(server: Server) -> None:
    sink, _ = opened(server)
    sink.write(changes([("upsert", "a", 1, 1.0)]))
    sink.close()
    server.rows("ALTER TABLE gold.headwater_sinks DROP COLUMN committed")
    server.rows("CREATE ROLE few LOGIN PASSWORD 'few'; GRANT USAGE ON SCHEMA gold TO few")
    with raises_code("SINK_REFUSES", match="has no column committed") as e:
        PostgresTable({**server.options, "user": "few", "password": "few"}, INTO).open(published())
    assert 'ALTER TABLE "gold"."headwater_sinks" ADD COLUMN committed bigint' in (e.value.hint or "")
    server.rows("DROP OWNED BY few; DROP ROLE few")
    again, at = opened(server)
    assert at == Position(1, 1) and at.committed is None
    again.write(changes([("upsert", "a", 1, 2.0)], first=2))
    again.close()
    last, at = opened(server)
    last.close()
    assert at == Position(1, 2) and at.committed == 2_000


def test_a_row_is_deleted_by_the_index_whichever_of_its_keys_are_null(server: Server) -> None:
    sink, _ = opened(server)
    keys = [(host, cpu) for host in ("a", "b", None) for cpu in (1, 2, None)]
    gone = [("a", 1), ("a", None), (None, 2), (None, None)]
    sink.write(changes([("upsert", *key, 1.0) for key in keys]))
    server.rows(
        "INSERT INTO gold.usage SELECT 'x' || n, n, 0 FROM generate_series(1, 100000) n; ANALYZE gold.usage; "
        "SELECT pg_stat_reset()"
    )
    sink.write(changes([("delete", *key, 1.0) for key in gone], first=2))
    sink.close()
    left = server.rows("SELECT host, cpu FROM gold.usage WHERE host IS NULL OR host NOT LIKE 'x%'")
    assert set(left) == {*keys} - {*gone} and len(left) == 5
    where = "FROM pg_stat_user_tables WHERE relname = 'usage'"
    assert until(  # it is told in a moment
        lambda: server.rows(f"SELECT idx_scan >= {len(gone)} {where}")[0][0], within=20
    )
    ((read,),) = server.rows(f"SELECT seq_tup_read {where}")
    assert read < 200_000  # by the question above alone


def test_a_table_that_another_holds_is_unavailable(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks_postgres, "LOCK_TIMEOUT", "200ms")
    sink, _ = opened(server)
    with psycopg.connect(**server.options) as other:
        other.execute("LOCK TABLE gold.usage")
        with raises_code("SINK_UNAVAILABLE", match="lock timeout"):
            sink.write(changes([("upsert", "a", 1, 1.0)]))
    sink.write(changes([("upsert", "a", 1, 1.0)]))
    sink.close()
    assert server.rows("SELECT host FROM gold.usage") == [("a",)]


def test_a_key_that_is_too_long_for_an_index_is_an_error(server: Server) -> None:
    sink, _ = opened(server)
    with raises_code("SINK_REFUSES", match="index row"):
        sink.write(changes([("upsert", random.Random(1).randbytes(20_000).hex(), 1, 1.0)]))
    sink.close()


def test_a_table_without_keys_is_appended_to_once(server: Server) -> None:
    sink, _ = opened(server, published(keys=()))
    batch = changes([("upsert", "a", 1, 1.0), ("upsert", "a", 1, 1.0)])
    sink.write(batch)
    sink.write(batch)
    assert server.rows("SELECT count(*) FROM gold.usage") == [(2,)]
    sink.close()


def test_every_type_arrives_as_it_is(server: Server) -> None:
    kinds = {
        **KINDS,
        "struct": pa.struct([("x", pa.string()), ("y", pa.float64())]),
    }
    columns = pa.schema(list(kinds.items()))
    last = datetime(9999, 12, 31, 23, 59, 59, 999999)
    lowest = (
        *(-(2**63), -128, -(2**15), 1.5, -math.inf, False, "a\tb\\N\n\U0001f30a", b"\x00\xff"),
        *(date(1, 1, 1), datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999)),
        *(Decimal("-1E-10"), [], {"x": "ü\x00", "y": math.nan}),
    )
    highest = (
        *(2**63 - 1, 127, 2**15 - 1, math.inf, math.nan, True, "", b""),
        *(date(9999, 12, 31), last.replace(tzinfo=UTC), last),
        *(Decimal("1234567890123456789012345678.0000000000"), [1, None], {"x": None, "y": 1.0}),
    )
    nothing = (0, *[None] * 13)
    sink, _ = opened(server, published(("k",), columns))
    sink.write(changes([("upsert", *row) for row in (lowest, nothing, highest)], columns=columns))
    sink.close()
    found = server.rows("SELECT * FROM gold.usage ORDER BY k")
    want = [(*lowest[:-1], {"x": "ü\ufffd", "y": "NaN"}), nothing, highest]
    assert [list(map(str, row)) for row in found] == [list(map(str, row)) for row in want]


def test_text_that_postgres_can_not_hold_is_marked(server: Server) -> None:
    sink, _ = opened(server)
    sink.write(changes([("upsert", "a\0b", 1, 1.0)]))
    sink.close()
    assert server.rows("SELECT host FROM gold.usage") == [("a�b",)]


def test_a_time_beyond_the_year_9999_is_told_by_its_column(server: Server) -> None:
    table, batch = beyond()
    sink, _ = opened(server, table)
    with raises_code("SINK_REJECTS_ROW", table="gold.usage", match=BEYOND) as refused:
        sink.write(batch)
    sink.close()
    assert "headwater rebuild gold.usage" in (refused.value.hint or "")
    assert server.rows("SELECT * FROM gold.usage") == []


def test_names_may_have_what_clients_take_for_placeholders(server: Server) -> None:
    columns = pa.schema([("net %s", pa.string()), ("share %", pa.int64()), ("_number", pa.int64())])
    sink = PostgresTable(server.options, "a%b.100 %s")
    sink.open(published(("net %s",), columns))
    sink.write(changes([("upsert", "%s", 1, 7)], columns=columns))
    sink.write(changes([("upsert", "%s", 2, 8)], columns=columns, first=2))
    sink.close()
    assert server.rows('SELECT * FROM "a%b"."100 %s"') == [("%s", 2, 8)]
    server.rows('DROP SCHEMA "a%b" CASCADE')


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_gives_what_the_last_change_of_each_key_says(server: Server, seed: int) -> None:
    want = cut_anyhow(seed, lambda: opened(server))
    found = {(host, cpu): usage for host, cpu, usage in server.rows("SELECT * FROM gold.usage")}
    assert found == want


@pytest.mark.parametrize(
    "index",
    [
        "UNIQUE NULLS NOT DISTINCT (cpu, host)",
        "UNIQUE NULLS NOT DISTINCT (host, cpu) INCLUDE (usage)",
        "PRIMARY KEY (host, cpu)",
        "UNIQUE (host, cpu), ALTER host SET NOT NULL, ALTER cpu SET NOT NULL",
    ],
)
def test_a_table_that_a_person_made_is_taken_where_it_holds_every_value(server: Server, index: str) -> None:
    server.rows(
        "CREATE SCHEMA gold; CREATE TABLE gold.usage (id serial, cpu bigint, host varchar, usage float8); "
        f"ALTER TABLE gold.usage ADD {index}"
    )
    sink, _ = opened(server)
    sink.write(changes([("upsert", "a", 1, 1.0)], [("upsert", "a", 1, 2.0)]))
    sink.close()
    assert server.rows("SELECT host, cpu, usage FROM gold.usage") == [("a", 1, 2.0)]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("host text, cpu text, usage float8, UNIQUE (host, cpu)", "its column cpu is text, not integer"),
        ("host text, cpu int, UNIQUE (host, cpu)", "its column usage is missing, not double precision"),
        (
            "host varchar(3), cpu int, usage float8, UNIQUE (host, cpu)",
            r"its column host is .*\(3\), not text",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(server: Server, made: str, says: str) -> None:
    server.rows(f"CREATE SCHEMA gold; CREATE TABLE gold.usage ({made})")
    with raises_code("SINK_TARGET_DIFFERS", match=says) as e:
        opened(server)
    assert "DROP TABLE gold.usage" in str(e.value)


@pytest.mark.parametrize(
    "index",
    [
        "ADD CHECK (usage > 0)",
        "ADD PRIMARY KEY (host)",
        "ADD UNIQUE (host, cpu), ALTER host SET NOT NULL",
        "ADD UNIQUE NULLS NOT DISTINCT (host) INCLUDE (cpu)",
        "ALTER host SET NOT NULL; CREATE UNIQUE INDEX ON gold.usage (host, cpu, (1)) NULLS NOT DISTINCT",
    ],
)
def test_keys_that_no_index_keeps_unique_are_refused(server: Server, index: str) -> None:
    server.rows("CREATE SCHEMA gold; CREATE TABLE gold.usage (host text, cpu int, usage float8)")
    server.rows(f"ALTER TABLE gold.usage {index}")
    with raises_code("SINK_TARGET_DIFFERS", match=r"no unique index .* is on exactly host, cpu") as e:
        opened(server)
    assert "(NULLS NOT DISTINCT, or on columns that are NOT NULL)" in str(e.value)


@pytest.mark.parametrize(
    ("have", "kind", "fits"),
    [
        ("timestamp(0) with time zone", "timestamp with time zone", False),
        ("timestamp(6) with time zone", "timestamp with time zone", True),
        ("numeric", "numeric(10,2)", True),
        ("numeric(20,2)", "numeric(10,2)", True),
        ("numeric(10,3)", "numeric(10,2)", False),
        ("numeric(20,1)", "numeric(10,2)", False),
        ("numeric", "bigint", True),
        ("integer", "bigint", False),
    ],
)
def test_a_column_takes_every_value_or_is_refused(have: str, kind: str, fits: bool) -> None:
    assert takes(have, kind) == fits


def test_who_may_make_nothing_writes_what_is_there(server: Server) -> None:
    sink, _ = opened(server)
    sink.close()
    server.rows(
        "CREATE ROLE few LOGIN PASSWORD 'few'; GRANT USAGE ON SCHEMA gold TO few; "
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA gold TO few"
    )
    sink = PostgresTable({**server.options, "user": "few", "password": "few"}, INTO)
    sink.open(published())
    sink.write(changes([("upsert", "a", 1, 1.0)]))
    sink.close()
    assert server.rows("SELECT host FROM gold.usage") == [("a",)]
    server.rows("DROP OWNED BY few; DROP ROLE few")


def test_a_table_that_is_removed_is_made_anew_and_filled_from_the_start(server: Server) -> None:
    sink, _ = opened(server)
    sink.write(changes([("upsert", "a", 1, 1.0)], [("upsert", "b", 1, 1.0)]))
    sink.close()
    server.rows("DROP TABLE gold.usage")
    again, at = opened(server)
    assert at == Position(0, -1)
    again.write(changes([("upsert", "a", 1, 1.0)], [("upsert", "b", 1, 1.0)], [("upsert", "c", 1, 1.0)]))
    again.close()
    assert server.rows("SELECT host FROM gold.usage ORDER BY host") == [("a",), ("b",), ("c",)]


def test_rows_of_an_earlier_life_are_refused_until_a_person_has_removed_them(server: Server) -> None:
    sink, _ = opened(server)
    sink.write(changes([("upsert", "a", 1, 1.0)]))
    sink.close()
    with raises_code("SINK_TARGET_DIFFERS", table="gold.usage", match=r"earlier life of gold\.usage") as e:
        opened(server, published(id="b"))
    server.rows(str(e.value).split("made anew: ")[1])
    again, at = opened(server, published(id="b"))
    again.close()
    assert at == Position(0, -1)


def test_a_server_that_is_down_is_unavailable_and_one_that_refuses_is_an_error(
    server: Server,
) -> None:
    sink, _ = opened(server)
    server.stop()
    with raises_code("SINK_UNAVAILABLE"):
        sink.write(changes([("upsert", "a", 1, 1.0)]))
    sink.close()
    with raises_code("SINK_UNAVAILABLE"):
        opened(server)
    server.start()
    wrong = PostgresTable({**server.options, "password": "not it"}, INTO)
    with raises_code("SINK_REFUSES", match="password authentication failed") as e:
        wrong.open(published())
    assert "not it" not in str(e.value) and PASSWORD not in str(e.value)
    sink, at = opened(server)
    assert at == Position(0, -1)
    sink.write(changes([("upsert", "a", 1, 1.0)]))
    server.rows("REVOKE ALL ON gold.usage FROM postgres; ALTER TABLE gold.usage ADD CHECK (usage < 5)")
    with raises_code("SINK_REFUSES", match="violates check constraint") as e:
        sink.write(changes([("upsert", "secret", 1, 7.0)], first=2))
    assert "secret" not in str(e.value)
    sink.close()


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("no more connections allowed (max_client_conn)", True),
        ("server login has been failing, try again later (server_login_retry)", True),
        ("query_wait_timeout", True),
        ("sorry, too many clients already", True),
        ("the database system is starting up", True),
        ("the database system is not accepting connections", True),
        ("canceling authentication due to timeout", True),
        ('password authentication failed for user "a"', False),
        ("server login has been failing, cached error: password authentication failed", False),
        ('no pg_hba.conf entry for host "::1", user "a", database "b", no encryption', False),
        ('database "b" does not exist', False),
        ("no such database: b", False),
        ('role "a" is not permitted to log in', False),
        ('permission denied for database "b"', False),
        ('pg_hba.conf rejects connection for host "::1", user "a", database "b"', False),
        ('database "b" is not currently accepting connections', False),
        ("Passwort-Authentifizierung für Benutzer »a« fehlgeschlagen", False),
    ],
)
def test_of_what_lets_nobody_in_that_is_final_which_waiting_does_not_mend(said: str, passes: bool) -> None:
    error = psycopg.OperationalError(f'connection to server at "::1", port 6432 failed: FATAL:  {said}')
    assert may_pass(error) == passes
