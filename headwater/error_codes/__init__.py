"""The code of every error that a user can meet: what it means, and the way out.

A code is stable, the texts of its errors are not. It has one meaning, wherever it is raised; the modules here
group them by where one meets them, and their docstrings say so. docs/errors.md is made from them:
`python -m headwater.error_codes > docs/errors.md`.
"""

from __future__ import annotations

from types import ModuleType

from headwater.error_codes import (
    analysis,
    configuration,
    definitions,
    flows,
    kafka,
    operations,
    quality,
    queries,
    setup,
    sinks,
)
from headwater.error_codes.analysis import Analysis
from headwater.error_codes.configuration import Configuration
from headwater.error_codes.definitions import Definitions
from headwater.error_codes.flows import Flows
from headwater.error_codes.kafka import Kafka
from headwater.error_codes.meaning import Meaning
from headwater.error_codes.operations import Operations
from headwater.error_codes.quality import Quality
from headwater.error_codes.queries import Queries
from headwater.error_codes.setup import Setup
from headwater.error_codes.sinks import Sinks

Code = Configuration | Definitions | Analysis | Quality | Kafka | Flows | Sinks | Operations | Queries | Setup

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
}
MEANINGS: dict[str, Meaning] = {
    code: meaning for room in ROOMS.values() for code, meaning in room.MEANINGS.items()
}
