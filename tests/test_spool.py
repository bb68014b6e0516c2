"""Who says something does not wait for those who should read it."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from io import StringIO

from headwater.common.progress import Board
from headwater.common.spool import Spool
from headwater.common.wait import until


def test_a_reader_who_stops_to_read_holds_nobody() -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as pipe, Spool(lambda: pipe, _left_out, most=100) as lines:
        board = Board(lines, StringIO())
        work = threading.Thread(target=lambda: [board.state(f"t{n}", "running") for n in range(5_000)])
        work.start()
        work.join(20.0)
        assert not work.is_alive()
        with os.fdopen(reads) as end:
            found = []
            while not found or found[-1].get("flow") != "t4999":
                found.append(json.loads(end.readline()))
    left_out = sum(each["lines"] for each in found if each["event"] == "left out")
    flows = [int(each["flow"][1:]) for each in found if each["event"] == "state"]
    assert flows == sorted(flows) and left_out + len(flows) == 5_000 and left_out


def test_the_end_waits_until_all_is_read() -> None:
    reads, writes = os.pipe()
    found: list[str] = []
    with os.fdopen(writes, "w") as pipe, os.fdopen(reads) as end:
        reader = threading.Thread(target=lambda: found.extend(end))
        reader.start()
        with Spool(lambda: pipe, _left_out) as lines:
            for number in range(3_000):
                print(f"line {number} {'-' * 100}", file=lines, flush=True)
        pipe.close()
        reader.join(60)
    assert [int(line.split()[1]) for line in found] == list(range(3_000))


def test_a_reader_who_is_gone_is_said_to_who_writes() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    pipe = os.fdopen(writes, "w")

    def is_said() -> bool:
        try:
            print("line", file=lines, flush=True)
        except BrokenPipeError:
            return True
        return False

    with Spool(lambda: pipe, _left_out) as lines:
        assert until(is_said, within=20)
    with suppress(BrokenPipeError):
        pipe.close()


def _left_out(lost: int) -> str:
    return json.dumps({"event": "left out", "lines": lost})
