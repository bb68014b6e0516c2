"""Reference tables: the state of a CSV file is kept once, however many flows ask for it at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from headwater.common import times
from headwater.project.reference import Reference


def test_flows_that_keep_one_state_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "hosts.csv"
    table = Reference("reference.hosts", path)
    flows, barrier = 8, Barrier(8)

    def version(_: int) -> str:
        barrier.wait()
        return table.version(tmp_path / "lake", times.now())

    with ThreadPoolExecutor(flows) as threads:
        for state in range(40):
            path.write_text(f"host,n\na,{state}\n" * 500)
            (digest,) = set(threads.map(version, range(flows)))
            kept = tmp_path / "lake" / "_reference" / "reference.hosts"
            assert (kept / f"{digest}.csv").read_text() == path.read_text()
    assert len(list(kept.iterdir())) == 40
