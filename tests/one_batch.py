"""A process of its own takes one batch and says how much memory that took: `python one_batch.py ROOT`."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import pyarrow as pa

from headwater.project.conf import Conf
from headwater.quality.quarantine import Quarantine
from headwater.runtime import sessions
from headwater.storage.identity import Identity
from headwater.testing import Project

RAW, READINGS = "bronze.raw", "silver.readings"
RULE = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 0}}
FILES = {
    "conf/local.yaml": "kafka: embedded\n",
    "bronze/raw.py": "import headwater as hw\nraw = hw.topic('raw')\n",
    "silver/readings.py": '''import headwater as hw
@hw.table(source="bronze.raw", decode=hw.json("n BIGINT"))
def readings(raw):
    """One row per reading."""
    return raw
''',
    "quality/silver.readings.json": json.dumps(
        {"name": READINGS, "expectations": [{**RULE, "meta": {"action": "quarantine"}}]}
    ),
}


def fill(root: Path, value: bytes, count: int) -> None:
    """A project whose topic has so many records of one value, in one commit of bronze."""
    project = Project(FILES, root)
    target, columns = project.target(RAW), project.tables[RAW].stored
    known = {
        "value": pa.array([value], pa.binary()).take(pa.array([0] * count)),
        "topic": pa.array(["raw"]).take(pa.array([0] * count)),
        "cluster": pa.array(["main"]).take(pa.array([0] * count)),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
    }
    now = pa.scalar(project.clock.now(), pa.timestamp("us", "UTC"))
    times = dict.fromkeys(("timestamp", "ingested_at"), pa.repeat(now, count))
    whole = {field.name: {**times, **known}.get(field.name, pa.nulls(count, field.type)) for field in columns}
    files = target.write(pa.table(whole).cast(columns), "0")
    target.append(files, Identity(RAW, 1, 0, {"raw": {"0": count}}))


def main(root: Path) -> None:
    """Take what the topic has, with the settings that a run has unless it is told others."""
    session = sessions.child(sessions.start(Conf()), parallelism=2)
    project = Project(FILES, root, spark=session)
    project.step(READINGS)
    (batch,) = project.batches(READINGS)
    java = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    status = Path(f"/proc/{java}/status").read_text(encoding="ascii")
    heap = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    said = {
        "python": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "java": int(heap) // 1024,
        "taken": batch.rows_in,
        "quarantined": batch.quarantined,
        "held": len(Quarantine(project.lake, READINGS).places()),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
