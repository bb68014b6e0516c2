"""The definitions that the docs show load and are analysed, over tables with the columns that they read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.planner import analysis
from headwater.project.load import load_project

DOCS = Path(__file__).parent.parent / "docs"
DECLARES = re.compile(
    r"\bCREATE (STREAMING|MATERIALIZED|FLOW)|"
    r"\bhw\.(table|process|materialized_view|auto_cdc|auto_cdc_from_snapshot|lookup|files|sink)\("
)
CONF = """kafka: embedded
s3: {acme-landing: {region: eu-central-1}}
postgres: {warehouse: {host: 127.0.0.1, dbname: shop, user: headwater}}
"""
IMPORTS = """import json
from datetime import timedelta
from urllib.request import Request, urlopen

import headwater as hw
from pyspark.sql import functions as F

"""
CHANGES = (
    "id INT, customer_id INT, name STRING, city STRING, segment STRING, at TIMESTAMP, changed_at TIMESTAMP"
)
COLUMNS = {  # of the tables of silver that examples read
    "auctions": "id STRING, category INT, opened TIMESTAMP, expires TIMESTAMP",
    "bids": "auction STRING, bidder STRING, price BIGINT, time TIMESTAMP, bid_at TIMESTAMP",
    "bus_positions": "bus_id STRING, event_time TIMESTAMP, route_id STRING, lat DOUBLE, lon DOUBLE",
    "card_payments": "payment_id STRING, amount DOUBLE",
    "clicks": "click_id STRING, event_time TIMESTAMP",
    "customer_changes": f"{CHANGES}, op STRING",
    "customer_dump": f"{CHANGES}, op STRING",
    "orders": "order_id STRING, customer_id INT, currency STRING, amount DOUBLE, at TIMESTAMP, "
    "placed_at TIMESTAMP",
    "page_views": "user_id STRING, event_time TIMESTAMP",
    "parcels": "parcel_id STRING, order_id STRING, sent_at TIMESTAMP",
    "payments": "payment_id STRING, merchant STRING, amount DOUBLE",
    "price_lists": "article STRING, price DOUBLE, delivered_on TIMESTAMP",
    "purchases": "account STRING, shop STRING",
    "rates": "currency STRING, rate DOUBLE, at TIMESTAMP",
    "sales": "shop STRING, article STRING",
    "shop_changes": CHANGES,
    "transfers": "payment_id STRING, amount DOUBLE",
    "web_changes": CHANGES,
}
OTHERS = {  # {table → the text that declares it, and the tables that it reads}
    "silver.customers": "CREATE STREAMING TABLE customers FLOW AUTO CDC FROM STREAM customer_changes "
    "KEYS (id) SEQUENCE BY changed_at STORED AS SCD TYPE 2",
    "gold.cpu_usage_5m": "CREATE STREAMING TABLE cpu_usage_5m AS SELECT window.start AS window_start, "
    "bus_id AS hostname, route_id AS cpu, avg(lat) AS avg_usage FROM STREAM silver.bus_positions "
    "WATERMARK event_time DELAY OF INTERVAL 10 SECONDS "
    "GROUP BY window(event_time, '5 minutes'), bus_id, route_id",
    "gold.totals": "CREATE STREAMING TABLE totals AS "
    "SELECT article AS item, count(*) AS total FROM STREAM silver.sales GROUP BY article",
}
PYTHON = {
    "silver.merchants": "merchants = hw.lookup(lambda keys: [], keys='merchant', "
    "columns='category STRING, risk DOUBLE', ttl='1 hour')",
    "bronze.raw_orders": "raw_orders = hw.topic('raw_orders')",
}


def examples() -> dict[str, tuple[str, str]]:
    """{page and place → language and text} of each example that declares something and leaves nothing out."""
    found = {}
    for page in sorted(DOCS.glob("*.md")):
        blocks = re.findall(r"^```(sql|python)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        for at, (language, text) in enumerate(blocks):
            if DECLARES.search(text) and "…" not in text and "def test_" not in text:
                found[f"{page.stem} {at}"] = language, text
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_loads_and_is_analysed(spark: SparkSession, tmp_path: Path, example: str) -> None:
    files = _files(*EXAMPLES[example])
    for name, text in {**_read_by(files), **files, "conf/local.yaml": CONF}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    project = load_project(tmp_path)
    assert project.tables or project.files or project.lookups
    assert project.tables.keys() <= analysis.analyse(spark, project).keys()


def test_they_are_most_of_what_the_pages_show() -> None:
    assert len(EXAMPLES) >= 30, sorted(EXAMPLES)


def _files(language: str, text: str) -> dict[str, str]:
    """The files that an example is: those that its comments name, or one."""
    said = re.split(r"^(?:--|#) ((?:bronze|silver|gold)/\w+\.\w+)$", text, flags=re.M)
    if len(said) == 1:
        layer = re.search(r"(?:TABLE|VIEW|FLOW) (silver|gold)\.", text)
        suffix = "sql" if language == "sql" else "py"
        said = ["", f"{layer[1] if layer else 'silver'}/example.{suffix}", text]
    head = IMPORTS if language == "python" else ""
    return {name: head + part for name, part in zip(said[1::2], said[2::2], strict=True)}


def _read_by(files: dict[str, str]) -> dict[str, str]:
    """The files of the tables that others read, and of those that these read."""
    found, text = dict[str, str](), "\n".join(files.values())
    own = {
        f"{name.partition('/')[0]}.{one}"
        for name, part in files.items()
        for names in re.findall(r"(?:TABLE|VIEW) (?:\w+\.)?(\w+)|^(\w+) = hw\.|^def (\w+)", part, re.M)
        for one in names
    }
    for table, said in OTHERS.items():
        layer, _, name = table.partition(".")
        if re.search(rf"\b{name}\b", text) and table not in own:
            found[f"{layer}/{name}.sql"] = said
            text += said
    for table, said in PYTHON.items():
        layer, _, name = table.partition(".")
        if re.search(rf"\b{name}\b", text) and table not in own:
            found[f"{layer}/{name}.py"] = f"import headwater as hw\n\n{said}\n"
    for name, columns in COLUMNS.items():
        if re.search(rf"\b{name}\b", text) and f"silver.{name}" not in own:
            found[f"silver/{name}.sql"] = (
                f"CREATE STREAMING TABLE {name} TBLPROPERTIES ('headwater.decode' = 'json', "
                f"'headwater.schema' = '{columns}') AS SELECT * FROM STREAM bronze.of_{name}"
            )
            text += f" bronze.of_{name}"
    for name in {*re.findall(r"\bbronze\.(\w+)", text)}:
        found[f"bronze/{name}.py"] = f"import headwater as hw\n\n{name} = hw.topic('{name}')\n"
    for name in {*re.findall(r"\breference\.(\w+)", text)}:
        found[f"conf/reference/{name}.csv"] = "item,price\n"
        found[f"conf/reference/{name}.ddl"] = "item STRING,\nprice DOUBLE\n"
    return found
