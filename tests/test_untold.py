"""Versions that bring no rows: who reads past many of them tells of it, so that what came before may go."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from pyspark.sql import SparkSession

from headwater.planner.outlines import Kind
from headwater.storage import log, ranges
from headwater.storage.ranges import Position
from headwater.testing import Project

ROOT = Path(__file__).parents[1]
FILES = {  # of the kinds that the reference project lacks
    "gold/overdrawn.sql": "CREATE STREAMING TABLE overdrawn AS SELECT account_id, currency, balance "
    "FROM STREAM gold.account_balances WHERE balance < 0",
    "gold/paired.sql": "CREATE STREAMING TABLE paired AS SELECT d.transfer_id, d.amount "
    "FROM STREAM silver.debit_legs AS d JOIN STREAM silver.credit_legs AS c ON d.transfer_id = c.transfer_id",
}
GENERATORS = "iot", "sales", "web", "rides", "ledger", "buses"


def test_every_kind_of_flow_tells_how_far_it_has_read(
    tmp_path: Path, interpreted: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "UNTOLD", 1)
    project = Project(ROOT, tmp_path / "project", spark=interpreted, at="2026-01-01T00:00:00Z")
    project.write(FILES)
    for generator in GENERATORS:
        project.generate(generator, 100, seed=3)
    project.step()
    tables = project.definitions.tables
    assert {project.tables[name].kind for name in tables} == {*get_args(Kind)}
    before = {name: sorted(project.rows(name), key=repr) for name in tables}
    for topic in project.definitions.topics.values():
        if topic.name in project.lake.places():
            project.send(topic.topic, [])
    project.step()
    assert {name: sorted(project.rows(name), key=repr) for name in tables} == before
    for name in tables:
        for flow, said in project.target(name).flows.items():
            for source in said["consumed"].keys() & project.lake.places().keys():
                read = Position.parse(said["consumed"][source])
                assert read.version == log.head(project.lake.place(source).path), f"{flow} has read {source}"
