"""A project in a test: in this process, in a folder of its own, without a Kafka broker.

    project = Project({"bronze/raw.py": …, "silver/visits.py": …})
    project.send("raw", [{"user": "ann", "n": 1}]).step()
    assert project.rows("silver.visits", "user, n") == [("ann", 1)]

`Project` runs the engine's own flows over a lake of its own. `apply` calls one definition with rows, and
`assert_same` says how two tables differ. docs/testing.md shows all of it.
"""

from headwater.connectors.produce import Faults
from headwater.testing.apply import Applied, apply
from headwater.testing.clock import Clock
from headwater.testing.compare import assert_same
from headwater.testing.project import Project
from headwater.testing.records import Record
from headwater.testing.rows import Rows
from headwater.testing.session import session

__all__ = ["Applied", "Clock", "Faults", "Project", "Record", "Rows", "apply", "assert_same", "session"]
