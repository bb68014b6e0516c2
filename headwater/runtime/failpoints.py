"""Places where a test may kill this process or its JVM: the numbered steps of the commit.

Active only where `HEADWATER_FAIL_POINT` is set, as `<step>:<flow>:<count>=<python|jvm|stop>`: at the
count-th time that the flow reaches the step, SIGKILL to this process, to its JVM, or SIGSTOP to this
process; stderr says so before. Steps: pinned, built, staged, committing, committed, sealed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from headwater.runtime import jvm

STEPS = ("pinned", "built", "staged", "committing", "committed", "sealed")

_LOCK = threading.Lock()
_seen = 0


def reach(step: str, flow: str) -> None:
    """Say that `flow` has reached `step`."""
    wanted = os.environ.get("HEADWATER_FAIL_POINT")
    if not wanted:
        return
    where, what = wanted.split("=")
    at_step, at_flow, count = where.split(":")
    if (at_step, at_flow) != (step, flow):
        return
    global _seen
    with _LOCK:
        _seen += 1
        if _seen != int(count):
            return
    print(f"fail point {wanted}", file=sys.stderr, flush=True)
    if what == "jvm":
        os.kill(jvm.pid(), signal.SIGKILL)
    else:
        os.kill(os.getpid(), signal.SIGSTOP if what == "stop" else signal.SIGKILL)
