"""The drawings of a project's graph."""

from __future__ import annotations

from pathlib import Path

from headwater.project.load import load_project as load
from headwater.query.inspect import graph

PYTHON = """import headwater as hw

DDL = hw.json("host STRING")


@hw.table(source="bronze.raw", decode=DDL)
def a(raw):
    return raw


@hw.table(source=["silver.a", "reference.hosts"])
def b(a, hosts):
    return a


@hw.alert(topic="alarms", source="bronze.raw", decode=DDL)
def watch(raw):
    return raw
"""


def project(tmp_path: Path) -> Path:
    for name, text in {
        "conf/local.yaml": "",
        "conf/reference/hosts.csv": "host\\n",
        "bronze/raw.py": "import headwater as hw\nraw = hw.topic('in')\n",
        "silver/a.py": PYTHON,
        "gold/n.sql": "CREATE STREAMING TABLE gold.n TBLPROPERTIES ('headwater.publish' = 'out') AS "
        "SELECT host, count(*) AS n FROM STREAM silver.a GROUP BY host",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_terminal(tmp_path: Path) -> None:
    assert graph.terminal(load(project(tmp_path))).splitlines() == [
        "kafka:in",
        "├─ bronze.raw",
        "│  └─ silver.a",
        "│     ├─ silver.b",
        "│     └─ gold.n",
        "│        └─ kafka:out",
        "└─ silver.watch",
        "   └─ kafka:alarms",
        "reference.hosts",
        "└─ silver.b",
    ]


def test_mermaid(tmp_path: Path) -> None:
    lines = graph.mermaid(load(project(tmp_path))).splitlines()
    assert lines[0] == "flowchart LR"
    nodes = {
        line.split("[")[0].split("(")[0].strip(): line
        for line in lines
        if " --> " not in line and "[" in line
    }
    assert nodes["n0"] == '  n0(["in"])' and '["silver.a"]' in "".join(nodes.values())
    labels = {short: line.split('"')[1] for short, line in nodes.items()}
    arrows = {tuple(labels[end.strip()] for end in line.split(" --> ")) for line in lines if " --> " in line}
    assert arrows == {
        ("in", "bronze.raw"),
        ("bronze.raw", "silver.a"),
        ("silver.a", "silver.b"),
        ("reference.hosts", "silver.b"),
        ("silver.a", "gold.n"),
        ("gold.n", "out"),
        ("in", "silver.watch"),
        ("silver.watch", "alarms"),
    }
