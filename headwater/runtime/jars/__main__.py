"""`python -m headwater.runtime.jars resolve` has the jars in the cache; `lock` rewrites jars.lock
(maintainers)."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from headwater.errors import HeadwaterError, SetupError
from headwater.runtime.jars import ivy, lock, resolve, retrieve_all


def main(arguments: list[str]) -> int:
    """Run one of the two commands; errors are one line on stderr."""
    try:
        if arguments == ["resolve"]:
            print(resolve())
        elif arguments == ["lock"]:
            print(f"{lock.lock_file()}: {write_lock(lock.lock_file())} jars")
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except HeadwaterError as e:
        print(f"headwater: {e} [{e.code}]", file=sys.stderr)
        return e.exit_code
    return 0


def write_lock(path: Path) -> int:
    """Resolve every set afresh and lock what came; returns the number of jars.

    Raises:
        SetupError: Ivy could not get all, or a jar would stand beside another version in pyspark.
    """
    with tempfile.TemporaryDirectory() as work:
        if problems := retrieve_all(Path(work)):
            raise SetupError(
                f"Ivy could not get every jar: {problems}",
                code="JAR_NOT_FETCHED",
                file=path,
                hint="nothing is written",
            )
        jars = [
            lock.LockedJar(each, jar.name, lock.sha256(jar))
            for each in lock.SETS
            for jar in (Path(work) / each).glob("*.jar")
        ]
    shipped = {_module(jar.name) for jar in ivy.pyspark_jars().glob("*.jar")}
    twice = sorted(jar.name for jar in jars if jar.set == "spark" and _module(jar.name) in shipped)
    if twice:
        raise SetupError(
            f"pyspark has these itself: {', '.join(twice)}",
            code="JAR_TWICE",
            file=path,
            hint="add an <exclude> to spark.xml",
        )
    path.write_text(lock.render(jars), encoding="utf-8")
    return len(jars)


def _module(file_name: str) -> str:
    """`kafka-clients` of `kafka-clients-3.9.2.jar`."""
    return re.sub(r"-\d[\w.-]*\.jar$", "", file_name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
