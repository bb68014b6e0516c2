"""The project in a test: records sent, flows stepped, tables read. It needs no broker."""

from pathlib import Path

from headwater.testing import Faults, Project, apply

ROOT = Path(__file__).parent.parent
TEA = {"order_id": "1", "item": "tea", "quantity": 2, "price": 3.5, "ordered_at": 1_767_225_605_000}


def test_an_order_has_an_amount() -> None:
    found = apply(Project(ROOT), "silver.orders", [TEA, {**TEA, "quantity": 0}, b"no JSON"])
    assert [row["amount"] for row in found.rows] == [7.0]
    rules = sorted(row["rules"] for row in found.rejected)
    assert rules == [["malformed"], ["values_to_be_between(quantity)"]]


def test_the_minutes_add_up() -> None:
    project = Project(ROOT, at="2026-01-01T01:00:00Z")
    project.send("orders", [TEA, {**TEA, "order_id": "2", "ordered_at": TEA["ordered_at"] + 60_000}]).step()
    columns = "strftime(minute, '%H:%M'), item, orders, revenue"
    assert project.rows("gold.revenue_1m", columns) == [("00:00", "tea", 1, 7.0), ("00:01", "tea", 1, 7.0)]


def test_of_a_hundred_orders_all_are_somewhere() -> None:
    project = (
        Project(ROOT).generate("orders", 100, seed=1, faults=Faults(malformed=0.05, invalid=0.05)).step()
    )
    held = len(project.rows("silver.orders")) + len(project.rows("quarantine.silver_orders"))
    assert held == 100
