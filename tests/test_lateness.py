"""Lateness: against plain Python on random logs, and what the command prints and refuses."""

from __future__ import annotations

import json
import math
import random
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raising import raises_code
from typer.testing import CliRunner

from headwater.cli import app
from headwater.common import durations
from headwater.errors.codes import Code
from headwater.project.load import Project, load_project
from headwater.project.watermarks import Window
from headwater.query import lateness
from headwater.query.lateness import chart as lateness_chart
from headwater.storage.identity import Identity
from headwater.storage.lake import Lake
from headwater.storage.target import Target

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = pa.struct(
    [("cluster", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
)
TIME = pa.timestamp("us", tz="UTC")
READINGS = pa.schema(
    [("host", pa.string()), ("event_time", TIME), ("seen", TIME), ("_source", SOURCE), ("ingested_at", TIME)]
    + [(name, pa.string()) for name in ("e", "i", "future", "known")]  # names of the measure's own
)
SILVER = """import headwater as hw

@hw.table(source="bronze.raw", decode=hw.json("host STRING, event_time TIMESTAMP, seen TIMESTAMP"))
def readings(raw):
    return raw
"""
GOLD = """CREATE STREAMING TABLE gold.{name}
AS SELECT {window} AS w, count(*) AS n
FROM STREAM silver.readings WATERMARK event_time DELAY OF INTERVAL {delay}
GROUP BY {window}
"""
Row = dict[str, Any]


def project(root: Path, **gold: tuple[str, str]) -> Project:
    """A project with silver.readings and tables below it: {name: (window expression, delay)}."""
    for folder in ("bronze", "silver", "gold", "conf"):
        (root / folder).mkdir()
    (root / "conf" / "local.yaml").write_text("kafka: embedded\n")
    (root / "bronze" / "raw.py").write_text("import headwater as hw\nraw = hw.topic('raw')\n")
    (root / "silver" / "readings.py").write_text(SILVER)
    for name, (window, delay) in gold.items():
        (root / "gold" / f"{name}.sql").write_text(GOLD.format(name=name, window=window, delay=delay))
    return load_project(root)


def fill(
    found: Project, rows: list[Row], schema: pa.Schema = READINGS, name: str = "silver.readings"
) -> None:
    """Commit the rows in two files, as they stand."""
    target = Target(Lake(found.conf.lake).create(name, schema, properties={}))
    for sequence, part in enumerate((rows[: len(rows) // 2], rows[len(rows) // 2 :])):
        folder = target.place.path / f"{sequence:012d}-test"
        folder.mkdir()
        pq.write_table(pa.Table.from_pylist(part, schema=schema), folder / "part.parquet")
        target.append([f"{folder.name}/part.parquet"], Identity(name, 1, sequence, {}))


def row(offset: int, event: float | None, *, partition: int = 0, ingested: float | None = None) -> Row:
    """A reading; times in seconds after `T0`."""
    arrived = max(event or 0, 0) if ingested is None else ingested
    return {
        "host": "h",
        "event_time": None if event is None else T0 + timedelta(seconds=event),
        "seen": T0,
        "_source": {"cluster": "main", "topic": "t", "partition": partition, "offset": offset},
        "ingested_at": T0 + timedelta(seconds=arrived),
    }


# The definition, in plain Python


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def first_end(event: int, window: Window) -> int:
    """The end of the first window that holds `event`: counted up from one that surely ends before it."""
    end = (event // window.slide - window.size // window.slide - 2) * window.slide
    end += window.offset % window.slide + window.size
    while end <= event:
        end += window.slide
    while end - window.slide > event:
        end -= window.slide
    return end


def judge(rows: list[Row], window: Window | None) -> tuple[dict[int, list[int]], list[int], int, int]:
    """{partition → lateness of its rows}, each row's greatest delay that loses it, NULLs, future ones."""
    late: dict[int, list[int]] = {}
    excess, nulls, future = [], 0, 0
    for one in rows:
        event, place = one["event_time"], one["_source"]
        if event is None:
            nulls += 1
            continue
        if event > one["ingested_at"] + timedelta(minutes=5):
            future += 1
            continue
        earlier = [
            micros(other["event_time"])
            for other in rows
            if other["_source"]["partition"] == place["partition"]
            and other["_source"]["offset"] < place["offset"]
            and other["event_time"] is not None
            and other["event_time"] <= other["ingested_at"] + timedelta(minutes=5)
        ]
        reached, own = max(earlier, default=-(10**30)), micros(event)
        late.setdefault(place["partition"], []).append(max(0, reached - own))
        excess.append(reached - first_end(own, window) if window else reached - own - 1)
    return late, excess, nulls, future


def quantile(values: list[int], percent: int) -> int:
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


@pytest.mark.parametrize(
    "expression",
    [
        None,
        "window(event_time, '5 minutes')",
        "window(event_time, '1 minute', '20 seconds', '7 seconds')",
        "window(event_time, INTERVAL 90 SECONDS)",
    ],
)
def test_it_is_what_the_definition_says(tmp_path: Path, expression: str | None) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    rows = []
    for n in range(700):
        clock = n * draw.choice((0.5, 1.0))
        event = clock - draw.choice((0, 0, 0, draw.expovariate(0.05), draw.expovariate(0.001)))
        event = draw.choice((event, round(event), round(event, 1)))
        kind = draw.random()
        shifted = None if kind < 0.02 else clock + draw.choice((299, 300, 301, 9e6)) if kind < 0.04 else event
        offset = n // 3 if draw.random() < 0.9 else n // 3 + 1  # one record may give several rows
        rows.append(row(offset, shifted, partition=draw.randrange(3), ingested=clock))
    rows += [row(234, None, partition=0, ingested=700.0), row(234, 9e6, partition=0, ingested=700.0)]
    draw.shuffle(rows)
    found = project(tmp_path, **({"below": (expression, "7 SECONDS")} if expression else {}))
    fill(found, rows)
    measured = lateness.measure(found, "silver.readings", event_time=None if expression else "event_time")
    (view,) = measured.views
    late, excess, nulls, future = judge(rows, view.window)
    everything = [value for values in late.values() for value in values]
    assert (measured.without_time, measured.future, measured.all.rows) == (nulls, future, len(everything))
    assert nulls and future
    assert [s.partition for s in measured.partitions] == sorted(late)
    for spread, values in [
        (measured.all, everything),
        *zip(measured.partitions, _in_order(late), strict=True),
    ]:
        assert spread.out_of_order == sum(value > 0 for value in values)
        assert [spread.median, spread.p95, spread.p99] == [quantile(values, q) for q in (50, 95, 99)]
        assert spread.max == max(values)
    for choice in view.choices:
        lost = sum(value >= choice.delay for value in excess)
        assert choice.late == lost and choice.completeness == 1 - lost / len(everything)
        assert choice.declared_by == (("gold.below",) if expression and choice.delay == 7_000_000 else ())
    assert view.choices[0].delay == 0 and view.choices[-1].late == 0
    for target in lateness.TARGETS:
        assert view.smallest(target) == min(
            (c for c in view.choices if c.completeness >= target), key=lambda choice: choice.delay
        )
    if expression:
        sizes = {"5 m": (300, 300, 0), "1 m": (60, 20, 7), "90 ": (90, 90, 0)}
        wanted = next(spans for text, spans in sizes.items() if text in expression)
        assert view.window == Window(*(second * 1_000_000 for second in wanted))


def _in_order(late: dict[int, list[int]]) -> list[list[int]]:
    return [late[partition] for partition in sorted(late)]


def test_only_the_last_rows_are_judged_but_earlier_ones_came_earlier(tmp_path: Path) -> None:
    now = (datetime.now(UTC) - T0).total_seconds()
    old, new = now - 100_000, now - 10
    rows = [
        row(0, old, ingested=old),
        row(1, old + 99_000, ingested=old + 99_000),
        row(2, new - 9_000, ingested=new),
        row(3, new, ingested=new),
        row(0, old, partition=1, ingested=old),
    ]
    found = project(tmp_path)
    fill(found, rows)
    measured = lateness.measure(found, "silver.readings", event_time="seen", last=timedelta(minutes=10))
    assert measured.all.rows == 2
    measured = lateness.measure(found, "silver.readings", event_time="event_time", last=timedelta(minutes=10))
    assert measured.all.rows == 2 and len(measured.partitions) == 1
    assert measured.all.max == pytest.approx((old + 99_000 - new + 9_000) * 1e6, abs=2)


def test_windows_that_tables_share_are_one_view_and_others_their_own(tmp_path: Path) -> None:
    five = "window(event_time, '5 minutes')"
    found = project(
        tmp_path,
        a=(five, "10 SECONDS"),
        b=(five, "1 MINUTE"),
        c=("window(event_time, '1 hour')", "0 SECONDS"),
    )
    fill(found, [row(0, 299), row(1, 310), row(2, 298), row(3, 3700), row(4, 297)])
    measured = lateness.measure(found, "silver.readings")
    assert [view.tables for view in measured.views] == [("gold.a", "gold.b"), ("gold.c",)]
    lost = {choice.delay // 1_000_000: choice.late for choice in measured.views[0].choices}
    assert (lost[0], lost[10], lost[30], lost[60]) == (2, 2, 1, 1)
    assert lost[1800] == 1 and lost[3600] == 0
    assert [c.late for c in measured.views[1].choices][:5] == [1, 1, 1, 1, 1]
    declared = {c.delay // 1_000_000: c.declared_by for c in measured.views[0].choices if c.declared_by}
    assert declared == {10: ("gold.a",), 60: ("gold.b",)}
    (asked,) = lateness.measure(found, "silver.readings", window=timedelta(minutes=1)).views
    assert asked.tables == () and asked.window == Window(60_000_000, 60_000_000)


def test_a_functions_delay_is_known_and_its_windows_are_asked_for(tmp_path: Path) -> None:
    found = project(tmp_path)
    (tmp_path / "gold" / "f.py").write_text(
        "import headwater as hw\n"
        "@hw.table(source='silver.readings', event_time='seen', delay='3 minutes')\n"
        "def f(readings):\n    return readings\n"
    )
    found = load_project(tmp_path)
    fill(found, [row(0, 0, ingested=0)])
    measured = lateness.measure(found, "silver.readings")
    assert measured.event_time == "seen" and measured.views[0].window is None
    assert [c.delay for c in measured.views[0].choices if c.declared_by] == [180_000_000]
    assert "gold.f" in measured.notes[0] and "--window" in measured.notes[0]


def test_a_hopeless_row_has_a_delay_too(tmp_path: Path) -> None:
    found = project(tmp_path)
    fill(found, [row(0, 0), {**row(1, 0), "event_time": datetime(1, 1, 1, tzinfo=UTC)}])
    (view,) = lateness.measure(found, "silver.readings", event_time="event_time").views
    assert view.choices[-1].late == 0 and view.choices[-2].late == 1


# Refusals: one line, and what to do


def test_what_can_not_be_measured_is_refused(tmp_path: Path) -> None:
    found = project(tmp_path, a=("window(event_time, '5 minutes')", "1 SECOND"))
    with raises_code(
        "TABLE_EMPTY", table="silver.readings", match=r"silver\.readings holds nothing yet; run"
    ):
        lateness.measure(found, "silver.readings")
    fill(found, [row(0, None)])
    fill(found, [{"host": "h"}], pa.schema([("host", pa.string())]), "silver.other")
    refused: list[tuple[str, dict[str, Any], Code, str]] = [
        ("silver.reading", {}, "UNKNOWN_TABLE", "did you mean"),
        ("silver.other", {}, "ARRIVAL_UNKNOWN", "has no column _source"),
        (
            "silver.readings",
            {"event_time": "host"},
            "EVENT_TIME_UNKNOWN",
            "one of: event_time, seen, ingested_at",
        ),
        ("silver.readings", {}, "NO_ROWS_TO_JUDGE", "no row whose event_time is known"),
        (
            "silver.readings",
            {"last": timedelta(hours=1)},
            "NO_ROWS_TO_JUDGE",
            "no row that was ingested since",
        ),
    ]
    for name, options, code, says in refused:
        with raises_code(code, table=name, match=says):
            lateness.measure(found, name, **options)
    (tmp_path / "gold" / "a.sql").unlink()
    with raises_code(
        "EVENT_TIME_UNKNOWN", match="nothing declares it; add --event-time COLUMN, one of: event_time"
    ):
        lateness.measure(load_project(tmp_path), "silver.readings")


# The command


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with 10,000 readings in two partitions: a few are late, and few of these very late."""
    root: Path = tmp_path_factory.mktemp("project")
    found = project(root, cpu_usage_5m=("window(event_time, '5 minutes')", "10 SECONDS"))
    draw, rows = random.Random(7), []
    for n in range(10_000):
        kind, clock = draw.random(), n * 0.5
        behind = draw.random() * (2 if kind > 0.02 else 60 if kind > 0.002 else 900)
        event = None if n == 5_000 else clock + 400 if n == 6_000 else clock - behind
        rows.append(row(n // 2, event, partition=n % 2, ingested=clock))
    fill(found, rows)
    return root


def invoke(root: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["lateness", "silver.readings", "--project", str(root), *arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_the_command_prints_what_the_docs_show(filled: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "operating.md").read_text(encoding="utf-8")
    shown = page.split("$ headwater lateness silver.readings\n")[1].split("```")[0]
    assert invoke(filled) == shown


def test_one_line_for_all_partitions(filled: Path) -> None:
    assert "main/t/0" in invoke(filled) and "main/t/0" not in invoke(filled, "--by", "table")


def test_the_command_prints_json(filled: Path) -> None:
    found = json.loads(invoke(filled, "--json"))
    assert (found["rows"], found["without_event_time"], found["future"]) == (9_998, 1, 1)
    assert [spread["partition"] for spread in found["partitions"]] == [0, 1]
    assert found["all"]["rows"] == sum(spread["rows"] for spread in found["partitions"])
    (view,) = found["views"]
    assert view["window_s"] == 300 and view["tables"] == ["gold.cpu_usage_5m"]
    assert view["recommended_s"]["99.00%"] in [choice["delay_s"] for choice in view["delays"]]


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_the_chart_is_one_file_that_needs_no_other(filled: Path, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"chart.{ending}"
    invoke(filled, "--chart", str(file))
    text = file.read_text(encoding="utf-8")
    drawing = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    points = drawing.findall(".//{http://www.w3.org/2000/svg}circle")
    assert len(points) == len(json.loads(invoke(filled, "--json"))["views"][0]["delays"])
    links = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "http" not in links and "<script" not in links and "src=" not in links and "declared" in text


def test_a_chart_of_another_ending_is_refused(filled: Path, tmp_path: Path) -> None:
    found = lateness.measure(load_project(filled), "silver.readings")
    with raises_code("CHART_NOT_WRITABLE", match=r"ends in \.svg or \.html"):
        lateness_chart.write(found, tmp_path / "chart.png")
    with raises_code("CHART_NOT_WRITABLE", match="choose another file"):
        lateness_chart.write(found, tmp_path / "none" / "chart.svg")


def test_bars_count_nines() -> None:
    shares = (0, 0.9, 0.99, 0.999, 0.99999999, 1)
    assert [round(lateness_chart.height(share), 6) for share in shares] == [0, 1, 2, 3, 5, 6]


@pytest.mark.parametrize(
    ("text", "micros", "again"),
    [
        ("0s", 0, "0s"),
        ("340ms", 340_000, "340ms"),
        ("90s", 90_000_000, "1m30s"),
        ("1h30m", 5_400_000_000, "1h30m"),
        ("24h", 86_400_000_000, "1d"),
        ("1d1ms", 86_400_001_000, "1d"),
        ("5 minutes", 300_000_000, "5m"),
        ("1 hour 30 s", 3_630_000_000, "1h"),
        ("250 milliseconds", 250_000, "250ms"),
    ],
)
def test_spans_are_read_and_written(text: str, micros: int, again: str) -> None:
    assert durations.parse(text) == timedelta(microseconds=micros) and durations.text(micros) == again


@pytest.mark.parametrize("text", ["", "5", "m", "minutes", "-5m", "5m x", "1.5h"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no span of time"):
        durations.parse(text)
