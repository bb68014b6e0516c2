"""What is in a file, record by record: lines as they are, rows of CSV and Parquet as JSON without loss."""

from __future__ import annotations

import bz2
import gzip
import json
from codecs import BOM_UTF8
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headwater as hw
from headwater.connectors import decode
from headwater.connectors.decode.parser import parser
from headwater.connectors.files import formats
from headwater.connectors.files.formats import UNREADABLE, Reader
from headwater.errors import NOWHERE
from headwater.project.definitions import Format


def read(path: Path, form: Format = "json", rows: int = 1 << 30, size: int = 1 << 30) -> list[bytes]:
    reader, found = Reader(path, form), list[bytes]()
    while True:
        values, ended = reader.take(rows, size)
        found += values.to_pylist()
        assert len(values) <= rows
        if ended:
            return found


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd)]
)
def test_lines_are_records_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"a.json{ending}"
    path.write_bytes(pack(b' {"n": 1}\n\r\n\nnot json\r\n\xff\x00\n{"n": "\xc3\xa4"}'))
    lines = [b' {"n": 1}', b"not json", b"\xff\x00", b'{"n": "\xc3\xa4"}']
    assert read(path) == read(path, "text") == read(path, rows=1) == read(path, size=1) == lines
    for block in range(1, 12):  # a line may lie in many blocks
        monkeypatch.setattr(formats, "BLOCK", block)
        assert read(path) == lines
        for skip in range(5):
            assert Reader(path, "json", skip).take(99, 99)[0].to_pylist() == lines[skip:]


@pytest.mark.parametrize("text", [b'{"n":1}\n{"n":2}\n', b"1\n2", b"1\n", b""])
def test_a_mark_of_utf_8_before_the_first_line_is_none_of_it(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(BOM_UTF8 + text)
    assert read(path) == text.split()
    path.write_bytes(text)
    assert read(path) == text.split()


def test_empty_lines_before_the_names_of_csv_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n\na,b\n1,2\n")
    assert read(path, "csv") == [b'{"a": "1", "b": "2"}']


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", zstd)])
def test_a_truncated_file_is_not_taken_for_a_short_one(
    tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    whole = pack(b"".join(b'{"n": %d}\n' % n for n in range(1000)))
    path = tmp_path / f"a.json{ending}"
    for cut in range(1, len(whole), max(1, len(whole) // 50)):
        path.write_bytes(whole[:cut])
        with pytest.raises(UNREADABLE):
            read(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(UNREADABLE):
        formats.check(path, "json")


def test_a_line_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "BLOCK", 10)
    monkeypatch.setattr(formats, "LONGEST", 1 << 20)
    (tmp_path / "a.json").write_bytes(b"[" * ((1 << 20) + 20))
    monkeypatch.setattr(formats, "BLOCK", 1 << 16)
    with pytest.raises(ValueError, match="longer than 1 MiB; write each record in its own"):
        read(tmp_path / "a.json")


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbfid,note\r\n1,"a ""b"", c\nd"\r\n\r\n2\r\n3,\xc3\xa4,more,still\r\n007,\r\n'.replace(
            b"\r\n", b"\n"
        )
    )
    lines = [
        '{"id": "1", "note": "a \\"b\\", c\\nd"}',
        '{"id": "2"}',
        '{"id": "3", "note": "ä", "_more": ["more", "still"]}',
        '{"id": "007", "note": ""}',
    ]
    assert [line.decode() for line in read(path, "csv")] == lines
    assert read(path, "csv", rows=1) == [line.encode() for line in lines]
    (tmp_path / "empty.csv").write_bytes(b"id,note\n")
    assert read(tmp_path / "empty.csv", "csv") == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'id,note\n1,"a\n', "unexpected end of data"),
        (b"id,id\n1,2\n", "names a column twice"),
        (b"id,note\n1,\xff\n", "codec can't decode"),
    ],
)
def test_what_is_no_csv(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / "a.csv").write_bytes(text)
    with pytest.raises(UNREADABLE, match=why):
        read(tmp_path / "a.csv", "csv")


AT = datetime(2026, 1, 31, 6, 0, 0, 250_000, tzinfo=UTC)
VALUES: dict[str, tuple[pa.DataType, Any, str]] = {
    "big": (pa.int64(), 2**63 - 1, "BIGINT"),
    "price": (pa.decimal128(38, 18), Decimal("12345678901234567890.123456789012345678"), "DECIMAL(38, 18)"),
    "share": (pa.float64(), 0.1 + 0.2, "DOUBLE"),
    "flag": (pa.bool_(), True, "BOOLEAN"),
    "day": (pa.date32(), date(2026, 1, 31), "DATE"),
    "at": (pa.timestamp("us", "Europe/Berlin"), AT, "TIMESTAMP"),
    "naive": (pa.timestamp("ns"), AT.replace(tzinfo=None), "TIMESTAMP"),
    "text": (pa.large_string(), 'ä "quoted"\n', "STRING"),
    "code": (pa.dictionary(pa.int8(), pa.string()), "x", "STRING"),
    "tags": (pa.list_(pa.int32()), [1, None, 3], "ARRAY<INT>"),
    "place": (
        pa.struct([("city", pa.string()), ("at", pa.timestamp("ms", "UTC"))]),
        {"city": "Ulm", "at": AT},
        "STRUCT<city: STRING, at: TIMESTAMP>",
    ),
    "counts": (pa.map_(pa.string(), pa.int64()), [("a", 1)], "STRUCT<a: BIGINT>"),
}


def test_parquet_comes_out_of_the_decoder_as_it_went_in(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    schema = pa.schema([(name, kind) for name, (kind, _, _) in VALUES.items()])
    row = {name: value for name, (_, value, _) in VALUES.items()}
    pq.write_table(pa.Table.from_pylist([row, dict.fromkeys(row)], schema), path)
    lines = read(path, "parquet")
    fields = decode.fields(
        hw.json(", ".join(f"{name} {ddl}" for name, (_, _, ddl) in VALUES.items())), NOWHERE
    )
    found, reasons = parser(fields)(pa.array(lines, pa.binary()))
    assert reasons.to_pylist() == [None, None]
    want = {**row, "naive": AT, "counts": {"a": 1}, "_rescued": None}
    assert found.to_pylist() == [want, dict.fromkeys(want)]


def test_times_of_zones_near_the_end_and_types_that_others_add(tmp_path: Path) -> None:
    path, end = tmp_path / "a.parquet", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    zoned = pa.timestamp("us", "Europe/Berlin")
    kinds = {
        "at": zoned,
        "in": pa.struct([("at", zoned), ("all", pa.list_(zoned))]),
        "by": pa.map_(pa.string(), zoned),
    }
    micros = (end - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    times = {"at": micros, "in": {"at": micros, "all": [micros]}, "by": [("x", micros)]}
    columns = {name: pa.array([times[name]], kind) for name, kind in kinds.items()}
    id_ = UUID(int=7)
    columns["id"] = pa.array([id_.bytes], pa.uuid())
    columns["doc"] = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}']))
    pq.write_table(pa.table(columns), path)
    (line,) = read(path, "parquet")
    said = "9999-12-31T23:59:59Z"
    assert json.loads(line) == {
        "at": said,
        "in": {"at": said, "all": [said]},
        "by": {"x": said},
        "id": str(id_),
        "doc": '{"a": 1}',
    }


def test_what_json_has_no_form_for(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    odd = {"nan": [float("nan"), float("-inf")], "raw": [b"\x00\xff", b""], "none": pa.nulls(2)}
    pq.write_table(pa.table(odd), path)
    assert read(path, "parquet") == [
        b'{"nan":"NaN","raw":"AP8=","none":null}',
        b'{"nan":"-Infinity","raw":"","none":null}',
    ]
    pq.write_table(
        pa.table({"x": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8()))}), path
    )
    with pytest.raises(ValueError, match=r"column x is .*bool8.* which has no form in JSON"):
        read(path, "parquet")
    pq.write_table(pa.table({"took": pa.array([5], pa.duration("s"))}), path)
    with pytest.raises(ValueError, match=r"column took is duration\[.*\], which has no form in JSON"):
        read(path, "parquet")


def test_parquet_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"n": list(range(50_000))})
    pq.write_table(table, path, row_group_size=10_000, use_dictionary=False)
    whole = path.read_bytes()
    assert read(path, "parquet", rows=777)[-1] == b'{"n":49999}'
    for cut in (3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(UNREADABLE):
            read(path, "parquet")


def avro(path: Path, schema: dict[str, Any], rows: list[dict[str, Any]], codec: str = "null") -> bytes:
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows, codec=codec, sync_interval=100)
    return path.read_bytes()


def record(**fields: Any) -> dict[str, Any]:
    listed = [{"name": name, "type": ["null", kind]} for name, kind in fields.items()]
    return {"type": "record", "name": "Row", "fields": listed}


AVRO: dict[str, tuple[Any, Any, str, Any]] = {  # Avro's type, the value, the field's type, the value then
    "big": ("long", 2**63 - 1, "BIGINT", 2**63 - 1),
    "price": (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 18},
        Decimal("12345678901234567890.123456789012345678"),
        "DECIMAL(38, 18)",
        Decimal("12345678901234567890.123456789012345678"),
    ),
    "share": ("double", 0.1 + 0.2, "DOUBLE", 0.1 + 0.2),
    "flag": ("boolean", True, "BOOLEAN", True),
    "day": ({"type": "int", "logicalType": "date"}, date(2026, 1, 31), "DATE", date(2026, 1, 31)),
    "at": ({"type": "long", "logicalType": "timestamp-micros"}, AT, "TIMESTAMP", AT),
    "naive": (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        AT.replace(tzinfo=None),
        "TIMESTAMP",
        AT,
    ),
    "text": ("string", 'ä "quoted"\n', "STRING", 'ä "quoted"\n'),
    "code": ({"type": "enum", "name": "Code", "symbols": ["X", "Y"]}, "Y", "STRING", "Y"),
    "raw": ({"type": "fixed", "name": "Raw", "size": 2}, b"\x00\xff", "STRING", "AP8="),
    "tags": ({"type": "array", "items": ["null", "int"]}, [1, None, 3], "ARRAY<INT>", [1, None, 3]),
    "counts": ({"type": "map", "values": "long"}, {"a": 1}, "STRUCT<a: BIGINT>", {"a": 1}),
}


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "snappy", "zstandard"])
def test_avro_comes_out_of_the_decoder_as_it_went_in(tmp_path: Path, codec: str) -> None:
    schema = record(**{name: kind for name, (kind, _, _, _) in AVRO.items()})
    row = {name: value for name, (_, value, _, _) in AVRO.items()}
    avro(tmp_path / "a.avro", schema, [row, dict.fromkeys(row)], codec)
    fields = decode.fields(
        hw.json(", ".join(f"{name} {ddl}" for name, (_, _, ddl, _) in AVRO.items())), NOWHERE
    )
    assert formats.of([str(tmp_path / "a.avro")]) == "avro"
    found, reasons = parser(fields)(pa.array(read(tmp_path / "a.avro", "avro"), pa.binary()))
    assert reasons.to_pylist() == [None, None]
    want = {name: value for name, (_, _, _, value) in AVRO.items()} | {"_rescued": None}
    assert found.to_pylist() == [want, dict.fromkeys(want)]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_avro_that_is_damaged(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a.avro"
    whole = avro(path, record(n="long"), [{"n": n} for n in range(200)], codec)
    assert read(path, "avro", rows=77)[-1] == b'{"n":199}'
    head = whole.index(whole[-16:]) + 16  # the schema, and the mark that ends every block
    blocks = {at + 16 for at in range(head - 16, len(whole)) if whole.startswith(whole[-16:], at)}
    for cut in {*range(len(whole))} - blocks:
        path.write_bytes(whole[:cut])
        with pytest.raises(UNREADABLE):
            read(path, "avro")
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with suppress(UNREADABLE):  # a number may be another one now: blocks have no checksums
            formats.check(path, "avro")
