"""The code of every error that a user can meet: what it means, and the way out.

A code is stable, the texts of its errors are not. It has one meaning, wherever it is raised; the modules here
group them by where one meets them, and their docstrings say so. docs/errors.md is made from them:
`python -m headwater.errors.codes > docs/errors.md`.
"""

from __future__ import annotations

from types import ModuleType

from headwater.errors.codes import (
    analysis,
    configuration,
    definitions,
    flows,
    kafka,
    machine,
    operations,
    quality,
    queries,
    setup,
    sinks,
    testing,
)
from headwater.errors.codes.analysis import Analysis
from headwater.errors.codes.configuration import Configuration
from headwater.errors.codes.definitions import Definitions
from headwater.errors.codes.flows import Flows
from headwater.errors.codes.kafka import Kafka
from headwater.errors.codes.machine import Machine
from headwater.errors.codes.meaning import Meaning
from headwater.errors.codes.operations import Operations
from headwater.errors.codes.quality import Quality
from headwater.errors.codes.queries import Queries
from headwater.errors.codes.setup import Setup
from headwater.errors.codes.sinks import Sinks
from headwater.errors.codes.testing import Testing

Code = (
    Configuration
    | Definitions
    | Analysis
    | Quality
    | Kafka
    | Flows
    | Sinks
    | Operations
    | Queries
    | Setup
    | Machine
    | Testing
)

ROOMS: dict[str, ModuleType] = {
    "Configuration": configuration,
    "Definitions": definitions,
    "Queries and functions of tables": analysis,
    "Quality": quality,
    "Kafka and generators": kafka,
    "Flows and the lake": flows,
    "Sinks": sinks,
    "Operations": operations,
    "Queries": queries,
    "Set-up": setup,
    "The machine": machine,
    "Tests of projects": testing,
}
MEANINGS: dict[str, Meaning] = {
    code: meaning for room in ROOMS.values() for code, meaning in room.MEANINGS.items()
}
