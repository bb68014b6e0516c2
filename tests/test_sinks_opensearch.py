"""An index in OpenSearch: each row is one document, whatever comes again; and nothing is lost in silence."""

from __future__ import annotations

import math
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from batches import BEYOND, KINDS, TABLE, beyond, changes, cut_anyhow, published
from deltalake import DeltaTable
from opensearch import PASSWORD, Server
from opensearchpy import OpenSearch
from raising import raises_code
from test_sinks import TABLE as READINGS
from test_sinks import Readings

from headwater.connectors.sinks import PROGRESS, Position, Published, documents
from headwater.connectors.sinks.opensearch import OpenSearchIndex
from headwater.errors import SinkUnavailable
from headwater.flows import publish
from headwater.operations.maintain.clean import clean
from headwater.operations.maintain.horizon import holds
from headwater.project import conf
from headwater.project.load import load_project
from headwater.storage import log
from headwater.storage.target import Target

pytestmark = pytest.mark.torture
INDEX = "gold.cpu"
NOTHING = Position(0, -1)
KEYWORD, DOUBLE = {"type": "keyword"}, {"type": "double"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(secured=True) as server:
        yield server


@pytest.fixture(autouse=True)
def client(server: Server) -> OpenSearch:
    """One that may do everything; no index is there."""
    client = server.client()
    client.indices.delete(index=f"gold.*,{PROGRESS}", ignore_unavailable=True)
    return client


def opened(
    server: Server, table: Published | None = None, index: str = INDEX, **options: Any
) -> tuple[OpenSearchIndex, Position]:
    sink = OpenSearchIndex(server.connection(**options), index)
    return sink, sink.open(table or published())


def found(server: Server, index: str = INDEX) -> dict[tuple[Any, Any], Any]:
    rows = server.documents(index).values()
    assert len({(row["host"], row["cpu"]) for row in rows}) == len(rows)
    return {(row["host"], row["cpu"]): row["usage"] for row in rows}


def test_rows_are_written_and_deleted_by_key_and_a_batch_again_changes_nothing(server: Server) -> None:
    sink, at = opened(server)
    assert at == NOTHING
    assert PROGRESS not in server.client().indices.get(index="*", expand_wildcards="open")  # it is hidden
    batch = changes(
        [("upsert", "a", 1, 1.0), ("upsert", None, 2, 2.0), ("upsert", "c", None, 3.0)],
        [("upsert", "a", 1, 10.0), ("delete", "c", None, 3.0)],
        [("upsert", "c", None, 5.0), ("upsert", None, 2, None)],
    )
    sink.write(batch)
    want = {("a", 1): 10.0, ("c", None): 5.0, (None, 2): None}
    assert found(server) == want
    sink.write(batch)
    assert found(server) == want
    # It begins before what the index has: only the last version is new.
    longer = changes([("delete", "a", 1, 0.0)], [("upsert", "z", 9, 0.0)], [("delete", "a", 1, 0.0)], first=2)
    sink.write(longer)
    sink.write(longer)
    assert found(server) == {key: want[key] for key in [("c", None), (None, 2)]} | {("z", 9): 0.0}
    sink.close()
    again, at = opened(server)
    assert at == Position(1, 4) and at.committed == 4_000
    again.close()


def test_a_table_without_keys_is_appended_to_once_however_its_versions_are_cut(server: Server) -> None:
    sink, _ = opened(server, published(keys=()))
    row = ("upsert", "a", 1, 1.0)
    sink.write(changes([row, row], [row]))
    sink.write(changes([row, row], [row]))
    sink.write(changes([row], [row, row, row], first=2))
    sink.close()
    assert sorted(server.documents(INDEX)) == [f"1-{id}" for id in ("1-0", "1-1", "2-0", "3-0", "3-1", "3-2")]


@pytest.mark.parametrize(
    ("keys", "ids"), [(("host", "cpu"), ['["a",1]', '["c",1]']), ((), ["1-1-0", "1-1-1", "1-2-0", "1-3-0"])]
)
def test_an_end_between_the_documents_and_their_version_sends_them_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...], ids: list[str]
) -> None:
    def ends(*_: object) -> None:
        raise KeyboardInterrupt

    gone = "delete" if keys else "upsert"
    versions = (
        [("upsert", "a", 1, 1.0), ("upsert", "b", 1, 1.0)],
        [(gone, "b", 1, 1.0)],
        [("upsert", "c", 1, 1.0)],
    )
    sink, _ = opened(server, published(keys))
    monkeypatch.setattr(sink, "_keep", ends)
    with pytest.raises(KeyboardInterrupt):
        sink.write(changes(*versions[:2]))
    sink.close()
    again, at = opened(server, published(keys))
    assert at == NOTHING
    again.write(changes(*versions))
    again.close()
    assert sorted(server.documents(INDEX)) == ids


def test_an_older_request_that_arrives_late_changes_nothing(server: Server) -> None:
    sink, _ = opened(server)
    late, _ = opened(server)
    sink.write(changes([("upsert", "a", 1, 1.0), ("upsert", "b", 1, 1.0)]))
    sink.write(changes([("upsert", "a", 1, 2.0), ("delete", "b", 1, 1.0)], first=2))
    late.write(changes([("upsert", "a", 1, 1.0), ("upsert", "b", 1, 1.0)]))
    assert found(server) == {("a", 1): 2.0}
    sink.close()
    late.close()


class Filled(Readings):
    """A table without keys, whose sink is an index."""

    def __init__(self, root: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        self._server, self._patch = server, monkeypatch
        monkeypatch.setattr(publish, "made", lambda *_: OpenSearchIndex(server.connection(), INDEX))
        self.number = 0

    def more(self, versions: int = 2) -> None:
        for _ in range(versions):
            self.number += 2
            self.commit(("a", self.number), ("b", self.number + 1))

    def forget(self) -> None:
        """Remove of the past what nobody holds."""
        path, head = self.written.place.path, log.head(self.written.place.path)
        held = [hold.version for hold in holds(load_project(self.root), self.lake) if "the sink" in hold.who]
        DeltaTable(path).create_checkpoint()
        clean(path, upto=min([head, *held]), before=datetime.now(UTC))

    def broken_off(self) -> None:
        """The documents of the next batch are written, and their version is not."""

        def ends(*_: object) -> None:
            raise SinkUnavailable("gone", code="SINK_UNAVAILABLE")

        with self._patch.context() as patch:
            patch.setattr(OpenSearchIndex, "_keep", ends)
            with raises_code("SINK_UNAVAILABLE"):
                self.run()

    def rebuilt(self) -> None:
        """The next generation is the live one: rows of this, and others."""
        place = self.written.place
        new = replace(place, generation=place.generation + 1)
        new = replace(new, path=self.lake.at(READINGS, new.generation))
        shutil.copytree(place.path, new.path)
        self.written = Target(new)
        self.more()
        self.lake.swap({READINGS: new})

    def found(self) -> list[tuple[str, int]]:
        self.run()
        return sorted((row["host"], row["n"]) for row in self._server.documents(INDEX).values())

    def rows(self) -> list[tuple[str, int]]:
        rows = DeltaTable(self.lake.place(READINGS).path).to_pyarrow_table().to_pylist()
        return sorted((row["host"], row["n"]) for row in rows)


@pytest.fixture
def case(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Filled:
    return Filled(tmp_path / "project", server, monkeypatch)


@pytest.mark.parametrize("whole", [True, False])
def test_a_first_fill_that_is_broken_off_has_each_row_once(case: Filled, whole: bool) -> None:
    case.more()
    if whole:
        case.forget()
    for _ in range(3):
        case.broken_off()
        case.more()
        case.forget()
    assert case.found() == case.rows()
    case.more()
    case.forget()
    assert case.found() == case.rows()
    assert log.first(case.written.place.path) > 2  # nothing is held for ever


def test_what_was_begun_and_is_gone_is_said(case: Filled, client: OpenSearch) -> None:
    case.more()
    case.forget()
    case.broken_off()
    case.more()
    path = case.written.place.path
    DeltaTable(path).create_checkpoint()
    clean(path, upto=log.head(path), before=datetime.now(UTC))  # the sink was not defined for a while
    with raises_code("SINK_POSITION_LOST", match=r"version \d+, a part of which was sent, is gone") as e:
        case.run()
    client.indices.delete(index=INDEX)
    shutil.rmtree(str(e.value).split("(")[-1].split(")")[0])
    assert case.found() == case.rows()


@pytest.mark.parametrize("again", [False, True])
def test_a_new_generation_that_is_broken_off_has_each_row_once(case: Filled, again: bool) -> None:
    case.more()
    assert case.found() == case.rows()
    for _ in range(2):
        case.rebuilt()
        case.broken_off()
        case.more()
        case.forget()
        if not again:
            assert case.found() == case.rows()
    assert case.found() == case.rows()


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_gives_what_the_last_change_of_each_key_says(
    server: Server, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.connectors.sinks.opensearch.ROWS", 7)
    monkeypatch.setattr("headwater.connectors.sinks.PIECE", 3)
    want = cut_anyhow(seed, lambda: opened(server))
    assert found(server) == want


def test_every_type_arrives_as_it_is_and_is_found(server: Server, client: OpenSearch) -> None:
    kinds = {
        **KINDS,
        "map": pa.map_(pa.string(), pa.float64()),
        "_source": pa.struct([("x", pa.string()), ("y", pa.float64())]),
    }
    columns = pa.schema(list(kinds.items()))
    last = datetime(9999, 12, 31, 23, 59, 59, 999999)
    long = "ü" * 40_000  # longer than a term can be
    lowest = (
        *(-(2**63), -128, -(2**15), 1.5, -math.inf, False, long, b"\x00\xff", date(1, 1, 1)),
        *(datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999), Decimal("-1E-10")),
        *([], [("a.b", 1.0), ("", None)], {"x": "a\0b", "y": math.nan}),
    )
    highest = (
        *(2**63 - 1, 127, 2**15 - 1, math.inf, math.nan, True, "Two Words", b"", date(9999, 12, 31)),
        *(last.replace(tzinfo=UTC), last, Decimal("1234567890123456789012345678.5")),
        *([1, None], [], {"x": None, "y": 1.0}),
    )
    sink, _ = opened(server, published(("k",), columns))
    nothing = (0, *[None] * 14)
    sink.write(changes([("upsert", *row) for row in (lowest, nothing, highest)], columns=columns))
    sink.close()
    again, _ = opened(server, published(("k",), columns))  # the index that was made fits
    again.close()
    low, none, high = (server.documents(INDEX)[f"[{key}]"] for key in (-(2**63), 0, 2**63 - 1))
    assert low == {
        **{"k": -(2**63), "i8": -128, "i16": -(2**15), "f": 1.5, "d": "-Infinity", "b": False, "s": long},
        **{"raw": "AP8=", "day": "0001-01-01", "at": "0001-01-01T00:00:00Z"},
        **{"local": "1969-12-31T23:59:59.999999", "dec": "-0.0000000001", "list": []},
        **{"map": {"a.b": 1.0, "": None}, "__source": {"x": "a\0b", "y": "NaN"}},
    }
    assert set(none.values()) == {0, None}
    assert (high["at"], high["dec"]) == (
        "9999-12-31T23:59:59.999999Z",
        "1234567890123456789012345678.5000000000",
    )
    assert (high["f"], high["d"], high["list"]) == ("Infinity", "NaN", [1, None])
    for query, want in {
        "k:<0": [low],
        "at:[9999 TO *]": [high],
        "dec:>1": [high],
        "b:true": [high],
        's:"Two Words"': [high],
        "s.text:words": [high],
        "__source.y:1": [high],
        "list:1": [high],
        "_ignored:(d OR s)": [low, high],
    }.items():
        hits = client.search(index=INDEX, body={"query": {"query_string": {"query": query}}})["hits"]["hits"]
        assert sorted((hit["_source"] for hit in hits), key=lambda row: row["k"]) == want, query


def test_a_key_that_is_too_long_for_an_id_is_an_id_all_the_same(server: Server) -> None:
    sink, _ = opened(server)
    sink.write(changes([("upsert", "a" * 600, 1, 1.0), ("upsert", "a" * 600, 2, 2.0)]))
    sink.write(changes([("delete", "a" * 600, 1, 1.0)], first=2))
    sink.close()
    assert found(server) == {("a" * 600, 2): 2.0}
    assert documents.identity(["a", None, 1.5]) == '["a",null,1.5]'


def made(client: OpenSearch, index: str = INDEX, **fields: Any) -> None:
    """An index that a person made; a field that is None is left out."""
    fields = {"host": KEYWORD, "cpu": {"type": "long"}, "usage": DOUBLE} | fields
    properties = {name: field for name, field in fields.items() if field is not None}
    client.indices.create(index=index, body={"mappings": {"properties": properties, "_meta": {"by": "me"}}})


def test_an_index_or_alias_that_a_person_made_is_taken_where_it_fits(
    server: Server, client: OpenSearch
) -> None:
    made(client, host={"type": "text"}, more=KEYWORD)
    client.indices.put_alias(index=INDEX, name="gold.alias")
    sink, _ = opened(server, index="gold.alias")
    sink.write(changes([("upsert", "a", 1, 1.0)]))
    sink.close()
    assert found(server) == {("a", 1): 1.0}
    meta = client.indices.get_mapping(index=INDEX)[INDEX]["mappings"]["_meta"]
    assert meta == {"by": "me", "headwater": {"table": TABLE, "id": "a"}}
    assert opened(server)[1] == Position(1, 1)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"cpu": KEYWORD}, "its field cpu is keyword, not integer"),
        ({"usage": None}, "its field usage is missing, not double"),
        ({"usage": {"properties": {"x": DOUBLE}}}, "its field usage is object, not double"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(
    server: Server, client: OpenSearch, fields: dict[str, Any], says: str
) -> None:
    made(client, **fields)
    with raises_code("SINK_TARGET_DIFFERS", match=says) as e:
        opened(server)
    assert f"{TABLE}->here" in str(e.value) and f"DELETE /{INDEX}" in str(e.value)


def test_what_an_index_can_not_be_is_said(server: Server, client: OpenSearch) -> None:
    made(client)
    made(client, "gold.more")
    for index in (INDEX, "gold.more"):
        client.indices.put_alias(index=index, name="gold.both")
    with raises_code("SINK_TARGET_DIFFERS", match="it is 2 indices; a sink writes to one"):
        opened(server, index="gold.both")
    with raises_code("SINK_REFUSES", match="must be lowercase"):
        opened(server, index="gold.Usage")
    with raises_code("SINK_TARGET_DIFFERS", match=r"its column 'a\.b' can't be a field's name"):
        opened(server, published(("a.b",), pa.schema([("a.b", pa.int32())])))


def test_a_time_beyond_the_year_9999_is_told_by_its_column(server: Server) -> None:
    table, batch = beyond()
    sink, _ = opened(server, table)
    with raises_code("SINK_REJECTS_ROW", table="gold.usage", match=BEYOND):
        sink.write(batch)
    sink.close()


def test_an_index_holds_one_table_in_one_life(server: Server, client: OpenSearch) -> None:
    sink, _ = opened(server)
    sink.write(changes([("upsert", "a", 1, 1.0)]))
    sink.close()
    with raises_code("SINK_TARGET_DIFFERS", match=r"it holds gold\.usage"):
        opened(server, published(name="gold.other"))
    with raises_code(
        "SINK_TARGET_DIFFERS", table="gold.usage", match=r"earlier life of gold\.usage.*DELETE /gold\.cpu"
    ):
        opened(server, published(id="b"))
    client.indices.delete(index=INDEX)
    again, at = opened(server, published(id="b"))
    again.close()
    assert at == NOTHING


def test_an_index_that_is_removed_is_made_anew_and_filled_from_the_start(
    server: Server, client: OpenSearch
) -> None:
    sink, _ = opened(server)
    first, second = changes([("upsert", "a", 1, 1.0)]), changes([("upsert", "b", 1, 1.0)], first=2)
    sink.write(first)
    client.indices.delete(index=INDEX)
    with raises_code("SINK_TARGET_GONE", match=r"the index gold\.cpu was removed"):
        sink.write(second)
    sink.close()
    assert not client.indices.exists(index=INDEX)
    sink, at = opened(server)
    assert at == NOTHING
    sink.write(first)
    sink.write(second)
    sink.close()
    assert found(server) == {("a", 1): 1.0, ("b", 1): 1.0}


def test_a_rejected_row_is_named_and_comes_again(server: Server, client: OpenSearch) -> None:
    made(client)  # its double takes no NaN
    sink, _ = opened(server)
    batch = changes([("upsert", "a", 1, 1.0), ("upsert", "hidden", 1, math.nan), ("upsert", "c", 1, 3.0)])
    with raises_code(
        "SINK_REJECTS_ROW",
        table="gold.usage",
        match=r"index gold\.cpu in OpenSearch rejects a row of gold\.usage",
    ) as e:
        sink.write(batch)
    assert "versions 1 to 1" in str(e.value) and "field [usage] of type [double]" in str(e.value)
    assert "hidden" not in str(e.value) and "NaN" not in str(e.value)
    sink.close()
    client.indices.put_mapping(
        index=INDEX, body={"properties": {"usage": {**DOUBLE, "ignore_malformed": True}}}
    )
    sink, at = opened(server)
    assert at == NOTHING
    sink.write(batch)
    sink.close()
    assert found(server) == {("a", 1): 1.0, ("hidden", 1): "NaN", ("c", 1): 3.0}


def test_an_index_that_takes_nothing_now_is_unavailable(server: Server, client: OpenSearch) -> None:
    sink, _ = opened(server)
    block = {"index.blocks.read_only_allow_delete": True}  # as OpenSearch does where its disk is full: 429
    client.indices.put_settings(index=INDEX, body=block)
    with raises_code("SINK_UNAVAILABLE", match="cluster_block_exception"):
        sink.write(changes([("upsert", "a", 1, 1.0)]))
    client.indices.put_settings(index=INDEX, body={"index.blocks.read_only_allow_delete": None})
    sink.write(changes([("upsert", "a", 1, 1.0)]))
    sink.close()
    assert found(server) == {("a", 1): 1.0}


def test_one_that_refuses_us_is_an_error_without_the_password(server: Server, tmp_path: Path) -> None:
    with raises_code("SINK_REFUSES", match="user or password is wrong") as e:
        opened(server, password="not it")
    assert "not it" not in str(e.value) and PASSWORD not in str(e.value)
    with raises_code("SINK_REFUSES", match="no permissions for"):
        opened(server, index="secret")
    with raises_code("SINK_REFUSES", match="CERTIFICATE_VERIFY_FAILED"):
        opened(server, ca_certs=None)
    with raises_code("CERTIFICATES_NOT_READABLE"):
        opened(server, ca_certs=str(tmp_path / "none.pem"))
    sink, _ = opened(server, ca_certs=None, verify_certs=False)
    sink.close()


def test_user_and_password_come_from_the_environment(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    options = server.options
    (tmp_path / "conf" / "local.yaml").write_text(
        f"opensearch: {{search: {{hosts: {options['hosts']}, ca_certs: {options['ca_certs']}, "
        "user: 'env:SEARCH_USER', password: 'env:SEARCH_PASSWORD'}}\n"
    )
    monkeypatch.setenv("SEARCH_USER", options["user"])
    monkeypatch.setenv("SEARCH_PASSWORD", options["password"])
    connection = conf.load(tmp_path, "local").opensearch["search"]
    assert connection is not False
    sink = OpenSearchIndex(connection, INDEX)
    assert sink.open(published()) == NOTHING
    sink.close()


def test_a_server_that_answers_nothing_or_is_down_is_unavailable(server: Server) -> None:
    sink, _ = opened(server, timeout=0.5)
    server.pause()
    with raises_code("SINK_UNAVAILABLE", match="Timeout"):
        sink.write(changes([("upsert", "a", 1, 1.0)]))
    with raises_code("SINK_UNAVAILABLE", match="Timeout"):
        opened(server, timeout=0.5)
    server.pause(go_on=True)
    sink.close()
    sink, at = opened(server)
    assert at == NOTHING
    sink.write(changes([("upsert", "a", 1, 2.0)]))
    sink.close()
    assert found(server) == {("a", 1): 2.0}
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        where = f"https://127.0.0.1:{nobody.getsockname()[1]}"
        with raises_code("SINK_UNAVAILABLE", match="refused"):
            opened(server, hosts=(where,))
        # One node of several is enough.
        sink, at = opened(server, hosts=(where, *server.options["hosts"]))
        sink.close()
    assert at == Position(1, 1)
