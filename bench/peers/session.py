"""Flink SQL, job by job, by PyFlink's Table API alone: the script that `bench.peers.flink` runs with
PyFlink's own Python.

Its first argument is a file of steps, each an environment: {mode, settings, setup: statements, jobs:
{name → INSERT statements}}. A line on how each job went is written to the second.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment


def main(asked: str, told: str) -> None:
    """Run all jobs of all steps; one that fails keeps no other from running."""
    with Path(told).open("w") as out:
        for step in json.loads(Path(asked).read_text()):
            environment = _environment(step)
            for name, inserts in step["jobs"].items():
                milliseconds, error = 0, ""
                try:
                    milliseconds = _run(environment, inserts)
                except Exception as e:
                    error = str(e) or repr(e)
                line = {"job": name, "milliseconds": milliseconds, "ended": time.time(), "error": error}
                print(json.dumps(line), file=out, flush=True)


def _environment(step: dict[str, Any]) -> TableEnvironment:
    environment = TableEnvironment.create(
        EnvironmentSettings.in_batch_mode()
        if step["mode"] == "batch"
        else EnvironmentSettings.in_streaming_mode()
    )
    for name, value in step["settings"].items():
        environment.get_config().set(name, value)
    for statement in step["setup"]:
        environment.execute_sql(statement)
    return environment


def _run(environment: TableEnvironment, inserts: list[str]) -> int:
    """Milliseconds that a job of some inserts runs, by Flink's own clock: its planning does not count."""
    statements = environment.create_statement_set()
    for insert in inserts:
        statements.add_insert_sql(insert)
    job = statements.execute().get_job_client()
    return int(job.get_job_execution_result().result().get_net_runtime())


main(*sys.argv[1:])
