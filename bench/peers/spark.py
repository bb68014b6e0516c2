"""System 1 by Spark alone: plain Structured Streaming, and Spark Declarative Pipelines, each over Delta."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench import lab
from bench.peers import streaming
from headwater.project.paths import engine_folder
from headwater.runtime import jars

PACKAGES = lab.ROOT / "tests" / "spark_pipelines.lock"  # what Spark's command needs beside ours
SPEC = """name: medallion
storage: {storage}
libraries:
  - glob: {{include: definitions/**}}
"""
SETTINGS = streaming.SETTINGS | {"spark.sql.sources.default": "delta"}


def streamed(folder: Path, bootstrap: str, hosts: Path) -> tuple[float, float]:
    """Drain the topic twice in one new process, `cold` and `warm`: seconds from the start of the process to
    the end of the first, and those of the second; the tables are in folders of these names."""
    _emptied(folder)
    told = folder / "told.jsonl"
    command = [sys.executable, "-m", "bench.peers.streaming", folder, bootstrap, hosts, told, "cold", "warm"]
    began = time.time()
    with (folder / "log").open("wb") as log:
        subprocess.run(command, cwd=lab.ROOT, stdout=log, stderr=log, check=True)
    cold, warm = map(json.loads, told.read_text().splitlines())
    return cold["ended"] - began, warm["ended"] - warm["began"]


def declared(folder: Path, bootstrap: str, hosts: Path) -> float:
    """Drain the topic by `spark-pipelines run`: seconds of the command; the tables are in `warehouse`."""
    _emptied(folder)
    packages, programs = _packages(), Path(sys.executable).parent
    (folder / "definitions").mkdir()
    shutil.copy(Path(__file__).parent / "sdp" / "medallion.py", folder / "definitions")
    (folder / "spark-pipeline.yml").write_text(SPEC.format(storage=(folder / "storage").as_uri()))
    settings = SETTINGS | {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars.spark_jars())),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
    }
    lines = [f"{key} {value}\n" for key, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    environment = os.environ | {
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(lab.ROOT), str(packages)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "MEDALLION_BOOTSTRAP": bootstrap,
        "MEDALLION_HOSTS": str(hosts),
    }
    command = [programs / "spark-pipelines", "run", "--spec", "spark-pipeline.yml"]
    command += ["--remote", f"local[{streaming.CORES}]"]
    began = time.monotonic()
    with (folder / "log").open("wb") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, check=True)
    return time.monotonic() - began


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _packages() -> Path:
    """The folder of what `spark-pipelines` imports, installed once."""
    home, text = engine_folder(lab.ROOT) / "spark-pipelines", PACKAGES.read_text()
    stamp = home / "installed"
    if not stamp.is_file() or stamp.read_text() != text:
        shutil.rmtree(home, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "--target", home, "-r", PACKAGES], check=True)
        stamp.write_text(text)
    return home
