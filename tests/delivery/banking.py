"""What the tables of the ledger must hold: what plain Python makes of the records that were sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from harness import Project, assert_same, once_each
from postgres import PASSWORD, Server

EVENTS, VIEW, SETTLED = "silver.transaction_events", "silver.transactions", "silver.settled_transactions"
HOUR_MS = 3_600_000
CATEGORIES = ("food", "travel", "home")


def category(merchant: str | None) -> str | None:
    """That of a merchant in PostgreSQL; of some nothing is known there."""
    number = int(merchant[-2:]) if merchant else 3
    return CATEGORIES[number % 4] if number % 4 < 3 else None


def assert_ledger(project: Project) -> None:
    """Transactions, each once; histories; what is joined as of its time; balances and spend, to the cent."""
    oracle, records = project.generator, project.records
    taken = oracle.transactions(records)
    columns = "transaction_id, account_id, customer_id, type, amount, currency, transfer_id, merchant"
    found = once_each(EVENTS, project.rows(EVENTS, f"{columns}, transaction_time, category"), 1)
    want = {
        (each.transaction_id,): (*each[1:4], _euros(each.amount), *each[5:], category(each.merchant))
        for each in taken
    }
    assert_same(EVENTS, want, found)
    _assert_history(project, "customers", oracle.CUSTOMERS)
    _assert_history(project, "accounts", oracle.ACCOUNTS)
    _assert_joined(project, taken)

    for table, window, start in (
        ("gold.account_balances", 0, "0"),
        ("gold.account_balances_1h", HOUR_MS, "epoch_ms(window_start)"),
    ):
        balance = "balance" if not window else "change"
        rows = project.rows(table, f"{start}, account_id, {balance}, transactions")
        want = {key: (_cents(cents), n) for key, (cents, n) in oracle.balances(records, window).items()}
        assert_same(table, want, once_each(table, rows, 2))
    ((total,),) = project.rows("gold.account_balances", "sum(balance)")
    assert total == _cents(sum(each.cents for each in taken))
    rows = project.rows("gold.customer_spend", "epoch_ms(day), epoch_ms(until), customer_id, spent, debits")
    want = {key: (_cents(cents), n) for key, (cents, n) in oracle.customer_spend(records).items()}
    assert_same("spend", want, once_each("spend", rows, 3))


def assert_ledger_ended(project: Project) -> None:
    """After the end of the input: what went on, each once; and the transfers."""
    oracle, records = project.generator, project.records
    want = {(id,): tuple(each) for id, each in oracle.settled(records).items()}
    columns = "transaction_id, account_kind, account_status, _matched"
    assert_same(SETTLED, want, once_each(SETTLED, project.rows(SETTLED, columns), 1))
    assert Counter(matched for *_, matched in want.values()).keys() == {True, False}

    taken = {each.transaction_id: each for each in oracle.transactions(records)}
    gone = {(id,): (_cents(taken[id].cents),) for (id,) in want}
    moved = project.rows("gold.movements", "transaction_id, amount")
    assert_same("movements", gone, once_each("movements", moved, 1))
    for table, kind in (("gold.debits", "DEBIT"), ("gold.credits", "CREDIT")):
        ids = [id for (id,) in want if taken[id].type == kind]
        assert sorted(project.rows(table, "transaction_id")) == sorted((id,) for id in ids), table

    transfers = [(transfer, *legs) for transfer, legs in oracle.transfers(records)]
    assert sorted(project.rows("gold.transfers", "transfer_id, debit_id, credit_id"), key=str) == sorted(
        transfers, key=str
    )
    assert Counter((debit is not None, credit is not None) for _, debit, credit in transfers).keys() == {
        (True, True),
        (True, False),
        (False, True),
    }


def _assert_history(project: Project, table: str, topic: str) -> None:
    """The rows as they are, and every version."""
    names = {
        "customers": ("customer_id", "name", "segment", "city"),
        "accounts": ("account_id", "customer_id", "kind", "status"),
    }[table]
    versions = project.generator.history(project.records, topic)
    now = {(key,): _values(last.fields, names) for key, (*_, last) in versions.items() if last.fields}
    assert_same(table, now, once_each(table, project.rows(f"silver.{table}", ", ".join(names)), 1))
    then = {
        (key, each.begin): (*_values(each.fields, names), each.end)
        for key, of_it in versions.items()
        for each in of_it
        if each.fields
    }
    key, *others = names
    columns = ", ".join([key, "epoch_ms(__START_AT)", *others, "epoch_ms(__END_AT)"])
    found = once_each(table, project.rows(f"silver.{table}_history", columns), 2)
    assert_same(f"{table} then", then, found)


def _assert_joined(project: Project, taken: list[Any]) -> None:
    """Each transaction with its account and customer as of its time; and what follows from that."""
    oracle = project.generator
    accounts, customers = (
        oracle.history(project.records, topic) for topic in (oracle.ACCOUNTS, oracle.CUSTOMERS)
    )
    want, spend = {}, dict[tuple[Any, ...], tuple[int, int]]()
    for each in taken:
        account = oracle.as_of(accounts.get(each.account_id, ()), each.transaction_time)
        customer = oracle.as_of(customers.get(each.customer_id, ()), each.transaction_time)
        of_account = _values(account, ("-", "kind", "status"))
        of_customer = _values(customer, ("-", "name", "segment", "city"))
        matched = account is not None and customer is not None
        want[each.transaction_id,] = (*of_account, *of_customer, matched)
        if each.type == "DEBIT":
            key = (of_customer[1], category(each.merchant))
            cents, n = spend.get(key, (0, 0))
            spend[key] = (cents - each.cents, n + 1)
    assert {matched for *_, matched in want.values()} == {True, False}
    columns = "transaction_id, account_kind, account_status, name, segment, city, _matched"
    assert_same(VIEW, want, once_each(VIEW, project.rows(VIEW, columns), 1))
    rows = project.rows("gold.segment_spend", "segment, category, spent, debits")
    found = once_each("segments", rows, 2)
    assert_same("segments", {key: (_cents(cents), n) for key, (cents, n) in spend.items()}, found)


def _values(fields: dict[str, Any] | None, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(fields[name] if fields else None for name in names[1:])


def _euros(amount: float) -> Decimal:
    return Decimal(str(amount)).quantize(Decimal("0.01"))


def _cents(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)


def warehouse(server: Server, environment: pytest.MonkeyPatch) -> dict[str, Any]:
    """A server as the project's connection `warehouse`, whose password the environment has."""
    environment.setenv("WAREHOUSE_PASSWORD", PASSWORD)
    return {"warehouse": {**server.options, "password": "env:WAREHOUSE_PASSWORD"}}


def merchants(generator: Any) -> str:
    """SQL that fills `ledger.merchants` in PostgreSQL."""
    known = {merchant: category(merchant) for merchant in generator.MERCHANTS}
    rows = ", ".join(f"('{merchant}', '{found}')" for merchant, found in known.items() if found)
    return (
        "CREATE SCHEMA IF NOT EXISTS ledger; CREATE TABLE ledger.merchants (merchant text, category text); "
        f"INSERT INTO ledger.merchants VALUES {rows}"
    )


def assert_sent(project: Project, server: Server) -> None:
    """What stands in PostgreSQL and in the topics is what the tables hold."""
    columns = "customer_id, spent, debits, {} day{}, {} until{}"
    want = project.rows("gold.customer_spend", columns.format("epoch_ms(", ")", "epoch_ms(", ")"))
    ours = columns.format(*("(1000 * extract(epoch FROM ", "))::bigint") * 2)
    assert sorted(want) == sorted(server.rows(f"SELECT {ours} FROM ledger.customer_spend"))
    for table, topic in (("gold.debits", "transactions.debits"), ("gold.credits", "transactions.credits")):
        taken = {row[0] for row in project.rows(table, "transaction_id")}
        assert taken == set(_sent(project, project.topic(topic))), topic


def _sent(project: Project, topic: str) -> Iterator[str]:
    """The transactions in a topic, all of them."""
    consumer = Consumer({**project.client(), "group.id": "all", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    assert len(partitions) == 5
    for number in partitions:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, number), 30)
        consumer.assign([TopicPartition(topic, number, first)])
        while first < end:
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            yield json.loads(message.value() or b"")["transaction_id"]
            first = message.offset() + 1
    consumer.close()
