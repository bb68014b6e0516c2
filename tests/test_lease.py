"""The lease, held by real processes: stopped ones keep it, killed ones do not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from raising import raises_code

from headwater.errors.codes import Code
from headwater.run.leases import Leases
from headwater.runtime import jvm
from headwater.storage import lease, mailbox
from headwater.storage.lease import Lease

HOLDER = """
import sys
from pathlib import Path
from headwater.storage.lease import Lease
held = Lease("silver.t", Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease of the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    java = psutil.Process(json.loads((tmp_path / "lease").read_text())["jvm"])
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        if java.is_running():
            java.send_signal(signal.SIGCONT)
            java.wait(timeout=30)


def refusal(folder: Path, code: Code = "LEASE_HELD") -> str:
    with raises_code(code, table="silver.t", file=folder / "lease") as refused:
        Lease("silver.t", folder)
    return str(refused.value)


def test_a_lease_is_for_one_holder_until_it_is_released(tmp_path: Path) -> None:
    first = Lease("silver.t", tmp_path / "_flows" / "silver.t")
    other = Lease("silver.u", tmp_path / "_flows" / "silver.u")
    pid = os.getpid()
    assert json.loads((tmp_path / "_flows/silver.t/lease").read_text()) == {"pid": pid, "jvm": jvm.pid()}
    assert refusal(tmp_path / "_flows" / "silver.t") == (
        f"silver.t: process {pid} is writing it; stop that one first (kill {pid})"
    )
    first.release()
    Lease("silver.t", tmp_path / "_flows" / "silver.t").release()
    other.release()


def test_another_process_is_named_and_holds_while_it_is_stopped(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    says = f"silver.t: process {holder.pid} is writing it; stop that one first (kill {holder.pid})"
    assert refusal(tmp_path) == says
    holder.send_signal(signal.SIGSTOP)
    assert refusal(tmp_path) == says
    holder.send_signal(signal.SIGCONT)
    os.kill(json.loads((tmp_path / "lease").read_text())["jvm"], signal.SIGKILL)
    assert refusal(tmp_path) == says  # its JVM alone is gone
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    Lease("silver.t", tmp_path).release()


def test_a_jvm_that_outlives_its_process_holds_its_half(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    java = json.loads((tmp_path / "lease").read_text())["jvm"]
    os.kill(java, signal.SIGSTOP)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    monkeypatch.setattr(lease, "WAIT_FOR_JVM", 0.2)
    assert (
        refusal(tmp_path, "LEASE_HELD_BY_JVM")
        == f"silver.t: the JVM {java} of an ended run still lives; end it first (kill {java})"
    )
    monkeypatch.undo()
    os.kill(java, signal.SIGCONT)  # it sees that its parent is gone, and ends
    mine = Lease("silver.t", tmp_path)
    assert json.loads((tmp_path / "lease").read_text()) == {"pid": os.getpid(), "jvm": jvm.pid()}
    mine.release()


def test_a_flow_whose_new_generation_cannot_be_leased_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = {"silver.t": tmp_path / "g0001"}
    held = Leases(SimpleNamespace(flow_folder=folder.get), lambda _: False)  # type: ignore[arg-type]
    held.take(folder)
    assert not held.follow("silver.t")
    folder["silver.t"] = tmp_path / "g0002"
    (in_the_way := tmp_path / "g0002" / "lease").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(OSError, match="lease"):
            held.follow("silver.t")
        assert not held.holds("silver.t")
    in_the_way.rmdir()

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device", str(folder))

    with monkeypatch.context() as patched:
        patched.setattr(mailbox, "drop", full)
        with pytest.raises(OSError, match="No space"):
            held.follow("silver.t")
    taken = tmp_path / "g0002" / "requests" / "1.taken"
    taken.parent.mkdir()
    taken.touch()
    assert held.follow("silver.t")
    assert not taken.exists()  # by whoever had the lease before
    assert held.holds("silver.t")
    Lease("silver.t", tmp_path / "g0001").release()
    refusal(tmp_path / "g0002")
    held.release()
    Lease("silver.t", tmp_path / "g0002").release()
