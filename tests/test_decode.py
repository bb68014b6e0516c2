"""The decoder: every malformed kind is marked alone, and every other row is what from_json makes of it."""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType
from raising import raises_code

from headwater.connectors import decode
from headwater.connectors.decode.contract import BREACH, Fields
from headwater.connectors.decode.parser import parser
from headwater.connectors.produce import load_generator
from headwater.errors import NOWHERE, Where
from headwater.errors.codes import Code
from headwater.project.bronze import BRONZE
from headwater.project.definitions import Contract, Json
from headwater.runtime import catalyst, jvm

DDL = (
    "hostname STRING, usage DOUBLE, occurred_at BIGINT, ok BOOLEAN, tiny TINYINT, small SMALLINT, whole INT, "
    "ratio FLOAT, price DECIMAL(10,2), day DATE, at TIMESTAMP, tags ARRAY<STRING>, "
    "place STRUCT<site: STRING, xy: ARRAY<DOUBLE>, since: DATE>, parts ARRAY<STRUCT<n: BIGINT, s: STRING>>"
)
IOT: Any = load_generator(Path(__file__).parents[1], "iot")
GOOD = b'{"hostname":"doc","usage":1.5,"occurred_at":7,"tags":["a"]}'

# kind → (value, what its reason says)
MALFORMED: dict[str, tuple[bytes | None, str]] = {
    "null": (None, "no value"),
    "empty": (b"", "not one JSON object"),
    "blank": (b" \n", "not one JSON object"),
    "invalid utf-8": (b'{"hostname":"\xc3\x28"}', "not UTF-8: invalid continuation byte at byte 13"),
    "invalid utf-8 in an unknown field": (b'{"x":"\xff"}', "not UTF-8"),
    "surrogate in utf-8": (b'{"hostname":"\xed\xa0\x80"}', "not UTF-8"),
    "half a surrogate pair": (b'{"hostname":"\\ud800"}', "surrogate"),
    "truncated": (b'{"hostname":"doc","usage":1.', "not one JSON object"),
    "truncated after an inner object": (b'{"place":{"site":"x"}', "Missing a comma or '}'"),
    "unclosed string": (b'{"hostname":"doc}', "JSON parse error"),
    "array": (b"[" + GOOD + b"]", "not one JSON object"),
    "scalar": (b"42", "not one JSON object"),
    "null literal": (b"null", "not one JSON object"),
    "trailing text": (GOOD + b" x", "not one JSON object"),
    "trailing bracket": (GOOD + b" }", "JSON parse error"),
    "trailing garbage": (GOOD + b" garbage }", "JSON parse error"),
    "trailing zero byte": (GOOD + b"\x00", "not one JSON object"),
    "zero byte before other text": (GOOD + b"\x00rest of an older message}", "JSON parse error"),
    "zero byte before another object": (GOOD + b"\x00" + GOOD, "JSON parse error"),
    "zero byte in a string": (b'{"hostname":"a\x00b"}', "JSON parse error"),
    "two objects": (GOOD + GOOD, "not one JSON object"),
    "two objects on two lines": (GOOD + b"\n" + GOOD, "not one JSON object"),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD, "not one JSON object"),
    "single quotes": (b"{'usage':1}", "JSON parse error"),
    "bare name": (b"{usage:1}", "JSON parse error"),
    "comment": (b'{"usage":1/**/}', "JSON parse error"),
    "trailing comma": (b'{"usage":1,}', "JSON parse error"),
    "control character": (b'{"hostname":"a\x01"}', "JSON parse error"),
    "newline in a string": (b'{"hostname":"a\nb"}', "JSON parse error"),
    "bad escape": (b'{"hostname":"\\x"}', "JSON parse error"),
    "leading zero": (b'{"usage":01}', "JSON parse error"),
    "number for a string": (b'{"hostname":42}', "Column(/hostname) holds number, not string"),
    "boolean for a string": (b'{"hostname":true}', "Column(/hostname)"),
    "object for a string": (b'{"hostname":{"a":1}}', "Column(/hostname)"),
    "string for a number": (b'{"usage":"1.5"}', "Column(/usage) holds string, not number"),
    "number for a boolean": (b'{"ok":1}', "Column(/ok)"),
    "fraction for a whole number": (b'{"occurred_at":1.0}', "int64"),
    "exponent for a whole number": (b'{"occurred_at":1e2}', "int64"),
    "bigint overflow": (b'{"occurred_at":9223372036854775808}', "int64"),
    "tinyint overflow": (b'{"tiny":200}', "int8"),
    "smallint overflow": (b'{"small":-32769}', "int16"),
    "int overflow": (b'{"whole":2147483648}', "int32"),
    "double overflow": (b'{"usage":1e309}', "too big"),
    "float overflow": (b'{"ratio":1e39}', "ratio: not a finite number"),
    "decimal overflow": (b'{"price":123456789.12}', "precision"),
    "decimal with a longer scale": (b'{"price":1.235}', "scale"),
    "nan": (b'{"usage":NaN}', "NaN and Infinity"),
    "nan for a whole number": (b'{"occurred_at":NaN}', "NaN"),
    "infinity": (b'{"usage":-Infinity}', "NaN and Infinity"),
    "nan in an array": (b'{"place":{"xy":[1,NaN]}}', "NaN and Infinity"),
    "nan in an unknown field": (b'{"x":[ NaN]}', "NaN and Infinity"),
    "nan as a string": (b'{"usage":"NaN"}', "Column(/usage)"),
    "duplicate field": (b'{"usage":1,"usage":2}', "Column(/usage) was specified twice"),
    "duplicate inner field": (
        b'{"place":{"site":"a","site":"b"}}',
        "Column(/place/site) was specified twice",
    ),
    "number for a date": (b'{"day":20000}', "Column(/day)"),
    "no such day": (b'{"day":"2026-02-30"}', "2026-02-30"),
    "inner date": (b'{"place":{"since":"soon"}}', "soon"),
    "number for a time": (b'{"at":1700000000}', "Column(/at)"),
    "time for a date": (b'{"day":"2026-01-01T00:00:00Z"}', "2026-01-01T00:00:00Z"),
    "text behind a date": (b'{"day":"2026-01-01 soon"}', "2026-01-01 soon"),
    "text behind a time": (b'{"at":"2026-01-01T00:00:00 Europe/Berlin"}', "Europe/Berlin"),
    "nanoseconds": (b'{"at":"2026-01-01T00:00:00.1234567Z"}', "1234567"),
    "no such hour": (b'{"at":"2026-01-01T24:00:00Z"}', "2026-01-01T24:00:00Z"),
    "array for an object": (b'{"place":[]}', "Column(/place)"),
    "object for an array": (b'{"tags":{}}', "Column(/tags)"),
    "wrong type in an array": (b'{"tags":["a",1]}', "Column(/tags/[])"),
    "wrong type in an object of an array": (b'{"parts":[{"n":"1"}]}', "Column(/parts/[]/n)"),
    "deep": (b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested deeper than 1000"),
    "a bit too deep": (b'{"x":' + b"[" * 1_000 + b"]" * 1_000 + b"}", "nested deeper than 1000"),
    "deep and never closed": (b'{"usage":' + b"[" * 10_000 + b"}", "nested deeper than 1000"),
}
# What from_json can't tell: see the docstring of `decode.native`.
NATIVE_TAKES = {
    "trailing bracket",
    "trailing garbage",
    "zero byte before other text",
    "zero byte before another object",
    "two objects",
    "two objects on two lines",
    "decimal with a longer scale",
    "duplicate field",
    "duplicate inner field",
}


def parse(
    ddl: str, values: list[bytes | None], contract: Contract = "evolve"
) -> tuple[list[dict[str, Any]], list[str | None]]:
    """The declared columns, and the reasons."""
    taken = Fields(jvm.ddl(ddl), contract)
    table, reasons = parser(taken)(pa.array(values, pa.binary()))
    return table.select(taken.declared.names).to_pylist(), reasons.to_pylist()


def bronze(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    """The values as rows of a bronze table; the offset is the place in the list."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [(None, v and bytearray(v), "t", 0, n, at, None, "main", at) for n, v in enumerate(values)]
    return spark.createDataFrame(rows, BRONZE)


# Malformed rows


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_row_is_marked_and_its_neighbours_are_decoded(kind: str) -> None:
    value, says = MALFORMED[kind]
    rows, reasons = parse(DDL, [GOOD, value, b'{"usage":2}', GOOD])
    assert reasons[0] is reasons[2] is reasons[3] is None
    assert reasons[1] is not None and says in reasons[1] and "\n" not in reasons[1] and len(reasons[1]) <= 500
    assert [row["usage"] for row in rows] == [1.5, None, 2.0, 1.5]
    assert rows[0]["tags"] == ["a"] and set(rows[1].values()) == {None}


def test_lines_that_together_have_as_many_objects_as_lines_keep_their_own() -> None:
    values: list[bytes | None] = [
        b'{"usage":1}{"usage":9}',
        b'{"usage":2}\x00}',
        b'{"usage":3}',
        b'{"usage":4}',
    ]
    rows, reasons = parse("usage DOUBLE", values)
    assert [row["usage"] for row in rows] == [None, None, 3.0, 4.0]
    assert reasons[2:] == [None, None] and None not in reasons[:2]


@pytest.mark.parametrize("kind", IOT.MALFORMED)
def test_every_fault_of_the_generator_is_malformed(kind: str) -> None:
    value = IOT.MALFORMED[kind](b"doc", b"cpu1", b"12.5", 1_700_000_000_000)
    good = IOT._reading(b"doc", b"cpu1", b"12.5", 7)
    rows, reasons = parse(
        "hostname STRING, cpu STRING, usage DOUBLE, occurred_at BIGINT", [good, value, good]
    )
    assert reasons[0] is reasons[2] is None and reasons[1]
    assert rows[0] == rows[2] == {"hostname": "doc", "cpu": "cpu1", "usage": 12.5, "occurred_at": 7}


@pytest.mark.parametrize(
    "value",
    [
        b'{"usage":2,"x":"NaN, Infinity: NaN"}',
        b'{"usage":2,"x":"\\" NaN"}',
        b'{"usage":2,"x":' + b"[" * 998 + b"]" * 998 + b"}",
        b'{"usage":2,"x":"' + b"[" * 5_000 + b'"}',
        b'{"usage":2,"x":"' + b'\\"[' * 5_000 + b'"}',
        b'\r\n\t {\n"usage"\r\n:\t2 }\n',
        b'{"x":1,"x":2,"usage":2}',
    ],
)
def test_what_only_looks_malformed_is_decoded(value: bytes) -> None:
    rows, reasons = parse(DDL, [GOOD, value, GOOD])
    assert reasons == [None] * 3 and [row["usage"] for row in rows] == [1.5, 2.0, 1.5]


@pytest.mark.timeout(30)
def test_a_hostile_row_takes_no_longer_than_its_bytes() -> None:
    unclosed = b'{"x":' + b"[" * 900 + b'"' + b'\\"[' * 200_000 + b"}"
    assert parse("usage DOUBLE", [unclosed])[1] != [None]
    assert parse("usage DOUBLE", [b'{"x": NaN' + b'"' + b'\\" NaN' * 200_000 + b"}"])[1] != [None]


def test_batches_of_nothing() -> None:
    assert parse(DDL, []) == ([], [])
    rows, reasons = parse(DDL, [None, b"x"])
    assert len(rows) == 2 and reasons == ["no value", "not one JSON object"]


def test_a_rows_fate_does_not_depend_on_its_neighbours() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    kinds = [value for value, _ in MALFORMED.values()]
    values = [draw.choice(kinds) if draw.random() < 0.3 else good(n) for n in range(700)]
    alone = {n: parse(DDL, [value]) for n, value in enumerate(values)}
    for _ in range(6):
        order = draw.sample(range(len(values)), draw.choice((1, 2, 127, 128, 129, 300, 700)))
        rows, reasons = parse(DDL, [values[n] for n in order])
        for at, n in enumerate(order):
            assert ([rows[at]], reasons[at] is None) == (alone[n][0], alone[n][1] == [None]), values[n]


def good(n: int) -> bytes:
    return b'{"hostname":"h%d","usage":%d.5,"place":{"xy":[%d]}}' % (n, n, n)


# Well-formed rows: as from_json reads them


def finite(width: int) -> st.SearchStrategy[str]:
    return st.floats(allow_nan=False, allow_infinity=False, width=width).map(repr)  # type: ignore[call-overload]


def whole(bits: int) -> st.SearchStrategy[str]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str)


TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
STRING = st.tuples(TEXT, st.booleans()).map(lambda drawn: json.dumps(drawn[0], ensure_ascii=drawn[1]))
DAY = st.dates().map(lambda day: json.dumps(day.isoformat()))
ZONE = st.sampled_from(["", "Z", "+02:00", "-11:30"])
INSTANT = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1))
TIME = st.tuples(INSTANT, st.sampled_from("T "), ZONE).map(
    lambda t: json.dumps(f"{t[0].isoformat(t[1])}{t[2]}")
)
PRICE = st.decimals(Decimal("-99999999.99"), Decimal("99999999.99"), places=2).map(str)
SPACE = st.sampled_from(["", "", "", " ", "\n", "\r\n", "\t "])
UNKNOWN = st.sampled_from(["unknown", "HOSTNAME", "Usage", "", "é", "a.b", "x y"])
ANY = st.one_of(STRING, finite(64), st.sampled_from(["null", "true", "[]", '{"a":{"a":[1,"x"]}}', "-0"]))


def array(element: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(element, st.just("null")), max_size=4).map(
        lambda parts: f"[{', '.join(parts)}]"
    )


def obj(**fields: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """An object that has some of the fields in any order, each NULL or what is drawn, and unknown ones."""

    @st.composite
    def draw(pick: st.DrawFn) -> str:
        names = pick(st.permutations(list(fields)))[: pick(st.integers(0, len(fields)))]
        members = [(name, pick(st.one_of(fields[name], st.just("null")))) for name in names]
        if pick(st.booleans()):
            members.insert(pick(st.integers(0, len(members))), (pick(UNKNOWN), pick(ANY)))
        space = [pick(SPACE) for _ in range(4)]
        body = f"{space[1]},{space[2]}".join(
            f"{json.dumps(name)}{space[3]}:{value}" for name, value in members
        )
        return f"{space[0]}{{{body}{space[1]}}}{space[2]}"

    return draw()


ROW = obj(
    hostname=STRING,
    usage=st.one_of(
        finite(64), whole(64), st.sampled_from(["1E+2", "-0.0", "4.9e-324", "123456789012345678901234"])
    ),
    occurred_at=whole(64),
    ok=st.sampled_from(["true", "false"]),
    tiny=whole(8),
    small=whole(16),
    whole=whole(32),
    ratio=finite(32),
    price=PRICE,
    day=DAY,
    at=TIME,
    tags=array(STRING),
    place=obj(site=STRING, xy=array(finite(64)), since=DAY),
    parts=array(obj(n=whole(64), s=STRING)),
)


@settings(max_examples=12, deadline=None, print_blob=True)
@given(st.lists(ROW, min_size=10, max_size=30))
def test_wellformed_rows_are_what_from_json_makes_of_them(
    interpreted: SparkSession, texts: list[str]
) -> None:
    values: list[bytes | None] = [text.encode() for text in texts]
    raw = bronze(interpreted, values)
    expected = raw.select("offset", F.from_json(F.col("value").cast("string"), DDL).alias("j"))
    fast = decode.native(raw, Json(DDL), NOWHERE).select(
        "_source.offset", F.struct(*jvm.ddl(DDL).names).alias("j")
    )
    rows, reasons = parse(DDL, values)
    for value, row, reason, wanted, native in zip(
        values, rows, reasons, ordered(expected), ordered(fast), strict=True
    ):
        note(repr(value))
        assert reason is None
        assert repr(row) == repr(wanted)  # -0.0 is not 0.0
        assert repr(native) == repr(wanted)


def ordered(frame: DataFrame) -> list[dict[str, Any]]:
    return [row["j"] for row in sorted(frame.toArrow().to_pylist(), key=lambda row: row["offset"])]


def test_native_leaves_out_what_the_decoder_finds_malformed(spark: SparkSession) -> None:
    names = [*MALFORMED, "good"]
    values = [value for value, _ in MALFORMED.values()] + [GOOD]
    kept = decode.native(bronze(spark, values), Json(DDL), NOWHERE).select("_source.offset").toArrow()
    assert {names[n] for n in kept["offset"].to_pylist()} == {*NATIVE_TAKES, "good"}


# Fields that are not declared, and declared ones that are not there


def rescued(ddl: str, values: list[bytes | None]) -> list[str | None]:
    table, _ = parser(Fields(jvm.ddl(ddl)))(pa.array(values, pa.binary()))
    found: list[str | None] = table["_rescued"].to_pylist()
    return found


NESTED = (
    "a INT, p STRUCT<x: INT, q: STRUCT<z: STRING>>, l ARRAY<STRUCT<n: INT>>, ll ARRAY<ARRAY<STRUCT<n: INT>>>"
)

# value → what is rescued of it
UNKNOWNS: list[tuple[bytes, str | None]] = [
    (b'{"a":1}', None),
    (b'{"a":1,"b":2}', '{"b":2}'),
    (b'{"a":1,"A":2}', '{"A":2}'),
    (b'{"b":null,"c":""}', '{"b":null,"c":""}'),
    (
        b'{"b":1.10e3,"c":12345678901234567890123456789.00}',
        '{"b":1.10e3,"c":12345678901234567890123456789.00}',
    ),
    (b'{"b":1,"b":"x"}', '{"b":1,"b":"x"}'),
    (b' {\n"b" : [ 1, {"}":"]"} ] , "a" : 1 }\n', '{"b":[ 1, {"}":"]"} ]}'),
    (b'{"\\u0061":1,"\\u00e9":"\\ud83d\\ude00","":"\\""}', '{"\\u00e9":"\\ud83d\\ude00","":"\\""}'),
    ('{"é":"ü","a":1}'.encode(), '{"é":"ü"}'),
    (b'{"p":{"x":1,"y":2,"q":{"z":"}","w":{}}},"b":3}', '{"p":{"y":2,"q":{"w":{}}},"b":3}'),
    (b'{"p":null,"l":null,"ll":[null,[null]]}', None),
    (b'{"l":[{"n":1},null,{"m":[1]},{}]}', '{"l":[null,null,{"m":[1]}]}'),
    (b'{"ll":[[],[{"n":1}],[null,{"n":2,"k":3}]]}', '{"ll":[null,null,[null,{"k":3}]]}'),
    (b'{"b":' + b"[" * 900 + b"]" * 900 + b"}", '{"b":' + "[" * 900 + "]" * 900 + "}"),
]


def test_unknown_fields_are_rescued_as_they_were_written() -> None:
    values = [value for value, _ in UNKNOWNS]
    assert parse(NESTED, [*values])[1] == [None] * len(values)
    assert rescued(NESTED, [*values]) == [wanted for _, wanted in UNKNOWNS]
    for value, wanted in UNKNOWNS:
        assert rescued(NESTED, [value]) == [wanted]


def prune(value: Any, kind: DataType) -> Any:
    """What of a parsed value is not declared; None where all of it is."""
    if isinstance(kind, StructType) and isinstance(value, dict):
        known = {field.name: field.dataType for field in kind}
        rest = {k: prune(v, known[k]) if k in known else (v,) for k, v in value.items()}
        return {k: v[0] if isinstance(v, tuple) else v for k, v in rest.items() if v is not None} or None
    if isinstance(kind, ArrayType) and isinstance(value, list):
        rest = [prune(element, kind.elementType) for element in value]
        while rest and rest[-1] is None:
            rest.pop()
        return rest or None
    return None


@settings(max_examples=60, deadline=None, print_blob=True)
@given(st.lists(ROW, min_size=1, max_size=12))
def test_what_is_rescued_is_the_record_less_what_is_declared(texts: list[str]) -> None:
    declared = jvm.ddl(DDL)
    for text, found in zip(texts, rescued(DDL, [text.encode() for text in texts]), strict=True):
        note(text)
        # Numbers compare as they were written.
        wanted = prune(json.loads(text, parse_float=str, parse_int=str), declared)
        assert (json.loads(found, parse_float=str, parse_int=str) if found else None) == wanted


def test_what_is_rescued_does_not_depend_on_neighbours() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    kinds: list[tuple[bytes | None, str | None]] = [
        *UNKNOWNS,
        *((value, None) for value, _ in MALFORMED.values()),
    ]
    for share in (0.0, 0.001, 0.3):
        drawn = [draw.choice(kinds) if draw.random() < share else (good(n), "-") for n in range(1_500)]
        values = [value for value, _ in drawn]
        taken = Fields(jvm.ddl(f"{NESTED}, hostname STRING, usage DOUBLE, place STRUCT<xy: ARRAY<INT>>"))
        table, reasons = parser(taken)(pa.array(values, pa.binary()))
        for (value, wanted), found, reason in zip(
            drawn, table["_rescued"].to_pylist(), reasons.to_pylist(), strict=True
        ):
            if wanted == "-":
                assert found is None and reason is None
            elif wanted is not None:
                assert found == wanted and reason is None, value


def test_unknown_fields_of_several_types_make_no_row_malformed() -> None:
    values: list[bytes | None] = [
        b'{"a":1,"x":1}',
        b'{"a":2,"x":"1"}',
        b'{"a":3,"x":{"y":1}}',
        b'{"a":4,"x":[]}',
    ]
    rows, reasons = parse("a INT", values)
    assert reasons == [None] * 4 and [row["a"] for row in rows] == [1, 2, 3, 4]
    assert rescued("a INT", values) == ['{"x":1}', '{"x":"1"}', '{"x":{"y":1}}', '{"x":[]}']


# value → its reason under `evolve`, `quarantine` and `freeze`, where "" stands for none
CONTRACTS: dict[str, tuple[bytes, str, str, str]] = {
    "all fields": (b'{"a":1,"p":{"x":1}}', "", "", ""),
    "nulls": (b'{"a":null,"p":null}', "", "", ""),
    "unknown": (
        b'{"a":1,"p":null,"b":2}',
        "",
        "unknown field 'b'",
        "breaks the contract: unknown field 'b'",
    ),
    "unknown in a struct": (
        b'{"a":1,"p":{"x":1,"y":2}}',
        "",
        "unknown field 'p.y'",
        "breaks the contract: unknown field 'p.y'",
    ),
    "other case": (
        b'{"A":1,"a":2,"p":null}',
        "",
        "unknown field 'A'",
        "breaks the contract: unknown field 'A'",
    ),
    "missing": (b'{"p":null}', "", "missing field 'a'", "breaks the contract: missing field 'a'"),
    "missing in a struct": (
        b'{"a":1,"p":{}}',
        "",
        "missing field 'p.x'",
        "breaks the contract: missing field 'p.x'",
    ),
    "renamed": (
        b'{"aa":1,"p":null}',
        "",
        "unknown field 'aa'; missing field 'a'",
        "breaks the contract: unknown field 'aa'; missing field 'a'",
    ),
    "retyped": (
        b'{"a":"1","p":null}',
        "Column(/a)",
        "Column(/a)",
        "breaks the contract: field 'a': JSON parse error: Column(/a)",
    ),
    "too large": (
        b'{"a":3000000000,"p":null}',
        "int32",
        "int32",
        "breaks the contract: field 'a': Failed to convert JSON to int32",
    ),
    "retyped in a struct": (
        b'{"a":3,"p":{"x":1.5}}',
        "int32",
        "int32",
        "breaks the contract: field 'p': Failed to convert",
    ),
    "twice": (b'{"a":1,"a":2,"p":null}', "twice", "twice", "breaks the contract: field 'a': "),
    "no object": (b"[]", "not one", "not one", "not one"),
    "broken": (b'{"a":1,}', "JSON parse", "JSON parse", "JSON parse"),
    "two objects": (b"{}{}", "not one", "not one", "not one"),
    "nan": (b'{"a":1,"p":{"x":NaN}}', "NaN", "NaN", "NaN"),
}


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("kind", CONTRACTS)
def test_a_contract_says_what_becomes_of_a_record(kind: str, at: int) -> None:
    contract: Contract = ("evolve", "quarantine", "freeze")[at - 1]  # type: ignore[assignment]
    ddl, whole = "a INT, p STRUCT<x: INT>", b'{"a":7,"p":{"x":null}}'
    value, says = CONTRACTS[kind][0], str(CONTRACTS[kind][at])
    for values in ([value], [whole, value, whole], [value] * 600):
        rows, reasons = parse(ddl, [*values], contract)
        for one, row, reason in zip(values, rows, reasons, strict=True):
            if one == whole:
                assert reason is None and row["a"] == 7
            elif says:
                assert reason is not None and says in reason
                assert reason.startswith(BREACH) == says.startswith(BREACH)
                assert row == {"a": None, "p": None}
            else:
                assert reason is None


def test_fields_missing_in_an_array_break_a_contract() -> None:
    for value, says in [
        (b'{"l":[{"n":1},{}]}', "missing field 'l[].n'"),
        (b'{"l":[{"n":1},{"n":null},null]}', None),
        (b'{"l":[{"n":1,"m":1},{"n":1,"m":1}]}', "unknown field 'l[].m'"),
    ]:
        assert parse("l ARRAY<STRUCT<n: INT>>", [value], "quarantine")[1] == [says]


def test_a_frozen_table_stops_at_the_first_such_record() -> None:
    taken = decode.fields(Json("a INT", "freeze"), Where.of("silver/x.py", "silver.x"))
    reasons = [
        "not one JSON object",
        f"{BREACH}unknown field 'b'",
        f"{BREACH}missing field 'a'",
    ]
    rows = [Row("main", "t", 0, offset, why) for offset, why in enumerate(reasons)]
    taken.enforce(rows[:1])
    with raises_code("CONTRACT_BROKEN", table="silver.x", file="silver/x.py") as stopped:
        taken.enforce(rows[::-1])
    text = str(stopped.value)
    assert text.startswith("silver/x.py: silver.x: unknown field 'b' (topic t, partition 0, offset 1; 2 such")
    assert "contract='quarantine'" in text and "\n" not in text


def test_an_unknown_contract_is_refused() -> None:
    with raises_code("PROPERTY_INVALID", match="contract='strict'; known: evolve, freeze, quarantine"):
        decode.fields(Json("a INT", "strict"), Where.of("silver/x.py", "silver.x"))  # type: ignore[arg-type]


# As a DataFrame


def test_decoded_rows_say_where_they_came_from(spark: SparkSession) -> None:
    raw = bronze(spark, [b'{"a":1}', b"{", None])
    rows = decode.decoded(raw, decode.fields(Json("a INT"), NOWHERE))
    assert rows.columns == ["a", "_rescued", "_source", "ingested_at", "_malformed"]
    assert raw.agg(F.count("*")).first() is not None
    found = {row["_source"]["offset"]: row for row in rows.toArrow().to_pylist()}
    assert found[0]["a"] == 1 and found[0]["_malformed"] is None
    assert found[0]["_source"] == {"cluster": "main", "topic": "t", "partition": 0, "offset": 0}
    assert found[0]["ingested_at"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert found[1]["a"] is None and found[1]["_malformed"] == "not one JSON object"
    assert found[2]["_malformed"] == "no value"


def test_rejects_are_the_malformed_rows_as_they_came(spark: SparkSession) -> None:
    values = [b'{"a":1}', b"{\xff", None, b'{"a":"x"}']
    raw = bronze(spark, values)
    found = decode.decoded(raw, decode.fields(Json("a INT"), NOWHERE)).agg(*decode.found()).first()
    assert found is not None and found["malformed"] == 3
    names = decode.REJECTED.names
    places = pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) for row in found["first"]], decode.REJECTED
    )
    rows = sorted(decode.rejects(raw, places).toArrow().to_pylist(), key=lambda row: row["offset"])
    assert [(row["offset"], row["value"]) for row in rows] == [(n, values[n]) for n in (1, 2, 3)]
    assert [row["reason"][:9] for row in rows] == ["not one J", "no value", "JSON pars"]
    assert list(rows[0]) == [*decode.RAW, "reason"]


def test_the_malformed_rows_of_a_batch_are_told_by_their_values_alone(spark: SparkSession) -> None:
    values = [b'{"a":1}', b"{\xff", None, b'{"a":"x"}']
    raw = bronze(spark, values)
    found = decode.rejected(raw, decode.fields(Json("a INT"), NOWHERE))
    rows = sorted(found.toArrow().to_pylist(), key=lambda row: row["offset"])
    assert [(row["offset"], row["value"]) for row in rows] == [(n, values[n]) for n in (1, 2, 3)]
    assert [row["reason"][:9] for row in rows] == ["not one J", "no value", "JSON pars"]
    assert list(rows[0]) == [*decode.RAW, "reason"]


def test_malformed_rows_without_headers_cost_what_those_with_some_do(spark: SparkSession) -> None:
    """Spark looks at each NULL of an array once for each row behind it, in a batch on its way to Python."""
    taken, took = decode.fields(Json("a INT"), NOWHERE), list[float]()
    one = bronze(spark, [b"{"]).drop("offset", "headers")
    for headers, count in (("array()", 10), ("array()", 50_000), ("NULL", 50_000)):
        many = spark.range(0, count, 1, 1).withColumnRenamed("id", "offset").crossJoin(F.broadcast(one))
        many = many.withColumn("headers", F.expr(headers).cast(BRONZE["headers"].dataType))
        before = of_java()
        decode.rejected(many, taken).write.format("noop").mode("overwrite").save()
        took.append(of_java() - before)
    assert took[2] < 2 * took[1] + 2, took


def of_java() -> float:
    """Seconds of CPU that the JVM has used."""
    used = Path(f"/proc/{jvm.pid()}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def test_fields_may_have_the_names_of_kafkas_columns(spark: SparkSession) -> None:
    value = b'{"topic":"x","partition":"p","offset":1.5,"value":"v","cluster":[1],"timestamp":3,"key":4}'
    ddl = "topic STRING, partition STRING, offset DOUBLE, value STRING, cluster ARRAY<INT>, "
    ddl += "timestamp BIGINT, key INT"
    for rows in (
        decode.decoded(bronze(spark, [value]), decode.fields(Json(ddl), NOWHERE)),
        decode.native(bronze(spark, [value]), Json(ddl), NOWHERE),
    ):
        row = rows.toArrow().to_pylist()[0]
        assert [row[name] for name in jvm.ddl(ddl).names] == ["x", "p", 1.5, "v", [1], 3, 4]
        assert row["_source"]["topic"] == "t" and row["_source"]["offset"] == 0


def test_kafkas_timestamp_is_a_column_where_it_is_asked_for(spark: SparkSession) -> None:
    decoder = Json("n INT, timestamp BIGINT", timestamp="sent_at")
    raw, taken = bronze(spark, [b'{"n":1,"timestamp":5}', b"{", b"{}"]), decode.fields(decoder, NOWHERE)
    sent = datetime(2026, 1, 1, tzinfo=UTC)
    here, reasons = decode.decoded_here(raw.toArrow(), taken)
    for rows in (
        decode.decoded(raw, taken).where("_malformed IS NULL").toArrow(),
        decode.native(raw, decoder, NOWHERE).toArrow(),
        here.filter(pc.is_null(reasons)),
    ):
        assert rows.select(["n", "timestamp", "sent_at"]).to_pylist() == [
            {"n": 1, "timestamp": 5, "sent_at": sent},
            {"n": None, "timestamp": None, "sent_at": sent},
        ]
    assert here.schema.names == decode.columns(taken, BRONZE).names
    assert "sent_at" not in decode.columns(decode.fields(Json("n INT"), NOWHERE), BRONZE).names


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("N", "COLUMN_TWICE", "has a field 'N' and gives"),
        ("_source", "COLUMN_RESERVED", "is the name of a column that every"),
    ],
)
def test_kafkas_timestamp_needs_a_name_of_its_own(name: str, code: Code, says: str) -> None:
    with raises_code(code, table="silver.x") as refused:
        decode.fields(Json("n INT", timestamp=name), Where.of("silver/x.py", "silver.x"))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("ddl", "code", "says"),
    [
        ("a STRIN", "DDL_INVALID", "not Spark DDL"),
        (
            "a MAP<STRING, INT>",
            "FIELD_NOT_SUPPORTED",
            "'a': map<string,int> is not supported; take it as STRING or a STRUCT",
        ),
        ("a STRUCT<b: ARRAY<BINARY>>", "FIELD_NOT_SUPPORTED", "'a'.b: binary is not supported"),
        (
            "ingested_at TIMESTAMP",
            "COLUMN_RESERVED",
            "'ingested_at' is the name of a column that every row has",
        ),
        ("_Source STRING", "COLUMN_RESERVED", "'_Source' is the name"),
        ("_rescued STRING", "COLUMN_RESERVED", "'_rescued' is the name"),
    ],
)
def test_fields_that_cannot_be_are_refused(ddl: str, code: Code, says: str) -> None:
    with raises_code(code, table="silver.x") as refused:
        decode.fields(Json(ddl), Where.of("silver/x.py", "silver.x"))
    assert says in str(refused.value) and str(refused.value).startswith("silver/x.py: silver.x: ")


def test_not_null_in_ddl_does_not_make_a_missing_field_malformed() -> None:
    assert parse("a INT NOT NULL, b STRUCT<c: INT NOT NULL>", [b"{}", b'{"b":{}}']) == (
        [{"a": None, "b": None}, {"a": None, "b": {"c": None}}],
        [None, None],
    )


# One parse of each row


def parses(frame: DataFrame) -> dict[str, int]:
    """How often each way to parse stands in the optimised plan."""
    found = dict.fromkeys(("MapInArrow", "JsonToStructs"), 0)
    for node in catalyst.nodes(frame._jdf.queryExecution().optimizedPlan()):
        for name in [catalyst.kind(node), *map(catalyst.kind, catalyst.expressions(node))]:
            if name in found:
                found[name] += 1
    return found


def test_each_row_is_parsed_once(spark: SparkSession) -> None:
    raw = spark.createDataFrame([], BRONZE)
    ddl = Json("hostname STRING, usage DOUBLE, at TIMESTAMP, place STRUCT<site: STRING>, tags ARRAY<STRING>")
    rows = decode.decoded(raw, decode.fields(ddl, NOWHERE))
    good = rows.where(F.col(decode.MALFORMED).isNull()).drop(decode.MALFORMED)
    for frame, wanted in ((good, (1, 0)), (decode.native(raw, ddl, NOWHERE), (0, 1))):
        used = frame.where("usage > 90").select(
            (F.col("usage") * 2).alias("u"),
            "usage",
            F.upper("hostname").alias("h"),
            "place.site",
            "tags",
            "_source",
        )
        assert tuple(parses(used).values()) == wanted


def test_time_zone_is_utc_whatever_the_session_says(spark: SparkSession) -> None:
    row = parse("at TIMESTAMP", [b'{"at":"1969-12-31T23:59:59.999999"}'])[0][0]
    assert row["at"] == datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)


def _keyed(spark: SparkSession, *records: tuple[bytes | None, bytes | None]) -> DataFrame:
    """(key, value) of each as a row of a bronze table."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        (k and bytearray(k), v and bytearray(v), "t", 0, n, at, None, "main", at)
        for n, (k, v) in enumerate(records)
    ]
    return spark.createDataFrame(rows, BRONZE)


DAY, LONG = date(2026, 1, 2), "12345678901234567890123.45"
KEYS: list[tuple[str, str, str, Any]] = [  # type, its key as text → the value; None: it says none
    ("STRING", "a7", "a7"),
    ("STRING", '"a7"', "a7"),
    ("STRING", '{"id": "a7", "n": 1}', "a7"),
    ("STRING", '{"schema": {"type": "struct"}, "payload": {"id": "a7"}}', "a7"),
    ("STRING", '{"schema": {"type": "string"}, "payload": "a7"}', "a7"),
    ("STRING", "7", "7"),
    ("STRING", "{7", "{7"),
    *(("STRING", text, None) for text in ('{"id": null}', '{"id": 7}', '{"nr": "a7"}', "{}")),
    *(("INT", text, 7) for text in ("7", '{"id": 7}', '{"schema": null, "payload": {"id": 7}}')),
    *(("INT", text, None) for text in ("x", '"7"', '{"nr": 7}', "null", "7.5", "[7]")),
    *(("DECIMAL(25,2)", text, Decimal(LONG)) for text in (LONG, f'{{"id":{LONG}}}')),
    *(("DATE", text, DAY) for text in ("2026-01-02", '"2026-01-02"', '{"id": "2026-01-02"}')),
    ("DATE", "soon", None),
    ("BOOLEAN", "true", True),
    ("INT", "[" * 100_000, None),
]


@pytest.mark.parametrize("kind", ["STRING", "INT", "DECIMAL(25,2)", "DATE", "BOOLEAN"])
def test_what_the_key_of_a_tombstone_says(spark: SparkSession, kind: str) -> None:
    said = [(text, value) for of, text, value in KEYS if of == kind]
    taken = decode.fields(Json(f"id {kind}, n INT", "evolve", None, ("id",)), NOWHERE)
    raw = _keyed(spark, *((text.encode(), None) for text, _ in said))
    rows, reasons = decode.decoded_here(raw.toArrow(), taken)
    assert rows["id"].to_pylist() == [value for _, value in said]
    assert [reason is None for reason in reasons.to_pylist()] == [value is not None for _, value in said]


@pytest.mark.parametrize("contract", get_args(Contract))
@pytest.mark.parametrize(
    ("ddl", "columns", "key", "read", "broken"),
    [
        ("id STRING, n INT", ("id",), b'a"b', {"id": 'a"b', "n": None}, b"\xff"),
        ("id INT, n STRING", ("id",), b"12", {"id": 12, "n": None}, b"twelve"),
        (
            "id INT, s STRUCT<x: INT>, n STRING",
            ("id", "n"),
            b'{"id":1,"n":"m","o":2}',
            {"id": 1, "n": "m"},
            b'{"id":1}',
        ),
    ],
    ids=["text", "number", "several"],
)
def test_a_record_without_a_value_deletes_its_key(
    spark: SparkSession,
    contract: Contract,
    ddl: str,
    columns: tuple[str, ...],
    key: bytes,
    read: dict[str, Any],
    broken: bytes,
) -> None:
    taken = decode.fields(Json(ddl, contract, "sent_at", columns), NOWHERE)
    raw = _keyed(spark, (key, None), (None, None), (broken, None), (key, b"{"))
    here, reasons = decode.decoded_here(raw.toArrow(), taken)
    there = decode.decoded(raw, taken).toArrow()
    for rows in (there, here.append_column("_malformed", reasons)):
        first, *others = rows.to_pylist()
        assert {name: first[name] for name in read} == read
        assert (first["_tombstone"], first["_malformed"]) == (True, None)
        assert all(row["_malformed"] for row in others)
    assert here.schema.names == decode.columns(taken, BRONZE).names == there.schema.names[:-1]
    assert sorted(row["offset"] for row in decode.rejected(raw, taken).collect()) == [1, 2, 3]
    (marked,) = decode.decoded(_keyed(spark, (key, b'{"id":7,"n":null,"s":{"x":1}}')), taken).collect()
    assert marked["_tombstone"] is False
