"""The JVM beside this process: what it says never gets between the lines of a result."""

from __future__ import annotations

import os
import subprocess
import sys

SAY = """
from headwater.runtime import jvm
jvm.gateway().jvm.System.out.println("said by Java")
jvm.end()
print("a result")
"""


def test_what_the_jvm_prints_goes_to_standard_error() -> None:
    said = subprocess.run(
        [sys.executable, "-c", SAY],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-Xlog:safepoint:stdout"},  # as the JVM's own warnings do
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout == "a result\n"
    assert "said by Java" in said.stderr
    assert "[safepoint" in said.stderr
