"""PyFlink: where it comes from, and jobs of Flink SQL in a process of its own.

It is installed once, from `pyflink.lock`, into an environment of its own below the engine's folder; its
connectors come by Ivy, each checked against `flink.lock`, into the user's cache.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench import lab
from headwater.common import locks
from headwater.project.paths import engine_folder
from headwater.runtime import jars, java
from headwater.runtime.jars import ivy, lock

HERE = Path(__file__).parent
PARALLELISM = 2
MEMORY = "4g"  # of the JVM that has Flink's client, job manager and task manager
SETTINGS = {
    "parallelism.default": str(PARALLELISM),
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.storage": "filesystem",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}
LAKE = "lake.`default`"  # the database of Paimon's tables


class Insert(NamedTuple):
    """A table that a job fills: its folder's name and columns, and the query whose rows it gets.

    Attributes:
        name: of the table.
        columns: as in a CREATE TABLE.
        query: what is inserted.
        key: of a table of Paimon that gets upserts; empty: rows are appended to Parquet files.
    """

    name: str
    columns: str
    query: str
    key: str = ""


class Ran(NamedTuple):
    """How a job went.

    Attributes:
        seconds: from the job's start to its end, when all that it wrote is committed.
        ready: seconds from the start of the process to the job's end.
    """

    seconds: float
    ready: float


def run(folder: Path, sources: list[str], jobs: dict[str, list[Insert]]) -> dict[str, Ran | str]:
    """Run jobs one after the other in one new process; {job → how it went, or its error}.

    Args:
        folder: gets the tables (`place` says where), the log and Flink's own files.
        sources: statements that declare what the jobs read.
        jobs: what each inserts.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tables = [each for inserts in jobs.values() for each in inserts]
    kept = [each for each in tables if each.key]
    catalog = f"CREATE CATALOG lake WITH ('type' = 'paimon', 'warehouse' = '{(folder / 'paimon').as_uri()}')"
    steps = [
        {
            "mode": "streaming",
            "settings": {**SETTINGS, "execution.checkpointing.dir": (folder / "checkpoints").as_uri()},
            "setup": [*sources, catalog, *(_declared(folder, each) for each in tables)],
            "jobs": {name: [_filled(each) for each in inserts] for name, inserts in jobs.items()},
        },
        {  # so that Paimon's tables can be read without Paimon
            "mode": "batch",
            "settings": {"parallelism.default": str(PARALLELISM), "table.local-time-zone": "UTC"},
            "setup": [catalog, *(_declared(folder, each._replace(key="")) for each in kept)],
            "jobs": {
                f"export of {each.name}": [f"INSERT INTO {each.name} SELECT * FROM {LAKE}.{each.name}"]
                for each in kept
            },
        },
    ]
    return _ran(folder, steps)


def place(folder: Path, name: str) -> Path:
    """The folder of a table's Parquet files."""
    return folder / "tables" / name


def _declared(folder: Path, table: Insert) -> str:
    if table.key:
        options = f"'bucket' = '{PARALLELISM}'"
        return (
            f"CREATE TABLE {LAKE}.{table.name} ({table.columns}, PRIMARY KEY ({table.key}) NOT ENFORCED) "
            f"WITH ({options})"
        )
    return (
        f"CREATE TABLE {table.name} ({table.columns}) WITH ('connector' = 'filesystem', "
        "'format' = 'parquet', "
        f"'path' = '{place(folder, table.name).as_uri()}', 'parquet.write.int64.timestamp' = 'true', "
        "'parquet.timestamp.time.unit' = 'micros', 'parquet.utc-timezone' = 'true')"
    )


def _filled(table: Insert) -> str:
    return f"INSERT INTO {f'{LAKE}.' if table.key else ''}{table.name} {table.query}"


def _ran(folder: Path, steps: list[dict[str, Any]]) -> dict[str, Ran | str]:
    asked, told, python = folder / "asked.json", folder / "told.jsonl", _installed()
    asked.write_text(json.dumps(steps))
    classes = [*_connectors(), *sorted(ivy.pyspark_jars().glob("hadoop-client-*.jar"))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLINK_")} | {
        "JAVA_HOME": str(java.home()),
        "JVM_ARGS": f"-Xmx{MEMORY}",
        "HADOOP_CLASSPATH": os.pathsep.join(map(str, classes)),
        "FLINK_LOG_DIR": str(folder),
        "_python_worker_execution_mode": "process",  # no server for functions in Python, which need Beam
    }
    began = time.time()
    with (folder / "output").open("wb") as output:
        command = [python, "-I", HERE / "session.py", asked, told]
        subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)
    lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    if len(lines) < sum(len(step["jobs"]) for step in steps):
        raise SystemExit(f"PyFlink has ended early: see {folder / 'output'}")
    return {
        line["job"]: line["error"] or Ran(line["milliseconds"] / 1000, line["ended"] - began)
        for line in lines
    }


def _installed() -> Path:
    """The Python of PyFlink's environment."""
    text = (HERE / "pyflink.lock").read_text()
    home = engine_folder(lab.ROOT) / "pyflink"
    python, stamp = home / "bin" / "python", home / "installed"
    if not stamp.is_file() or stamp.read_text() != text:
        print("installing PyFlink, once (some 300 MB)", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "-r", HERE / "pyflink.lock"], check=True)
        stamp.write_text(text)
    return python


def _connectors() -> list[Path]:
    """The jars of `flink.xml`, each as `flink.lock` says it."""
    text = (HERE / "flink.lock").read_text()
    folder = jars.jars_folder().parent / lock.lock_hash(text)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locks.alone(folder.parent / ".lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=jars.WORK) as work:
                problems = ivy.retrieve("flink", Path(work), HERE)
                if problems:
                    raise SystemExit(f"Flink's connectors could not be had: {problems}")
                _check(Path(work) / "flink", text)
                (Path(work) / "flink").rename(folder)
    _check(folder, text)
    return sorted(folder.glob("*.jar"))


def _check(folder: Path, text: str) -> None:
    got = {f"{lock.sha256(path)} {path.name}" for path in folder.iterdir()}
    if different := got ^ set(text.splitlines()):
        raise SystemExit(f"{folder}: not what bench/peers/flink.lock says: {sorted(different)}")
