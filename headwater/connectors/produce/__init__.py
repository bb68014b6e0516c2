"""Send a generator's records to Kafka, at a given rate or as fast as they go.

A generator is a file of the project, `generators/NAME.py`. It offers two names:

    topics: list[Topic]                       # what it writes to; made if missing
    def records(*, seed: int, faults: Faults, clock: Iterator[int]) -> Iterator[Record]: ...

A third one, `shown`, is what `headwater demo` ends with: a table and its order, `gold.x ORDER BY place`.

`records` never ends. It takes one instant from `clock` for each record it yields (epoch milliseconds,
UTC: when that record is produced) and is a pure function of its arguments: with the same seed, faults
and clock it yields the same bytes in the same order, and a longer run only adds to a shorter one.
Every record that is not an ordinary one says so in `Record.fault`; the ledger counts those labels.
A generator draws from `random.Random(seed).random()` only: the one method whose sequence Python
promises to keep from version to version. `headwater.connectors.produce.events` has the loop that most of
them need.
"""

from headwater.connectors.kafka.broker import Topic
from headwater.connectors.produce.clock import DEFAULT_START, DEFAULT_STEP, event_clock, stepped, wall_clock
from headwater.connectors.produce.generator import Generator, load_generator
from headwater.connectors.produce.records import Faults, Ledger, Record
from headwater.connectors.produce.sender import BackgroundProducer, Sent, run_producer

__all__ = [
    "DEFAULT_START",
    "DEFAULT_STEP",
    "BackgroundProducer",
    "Faults",
    "Generator",
    "Ledger",
    "Record",
    "Sent",
    "Topic",
    "event_clock",
    "load_generator",
    "run_producer",
    "stepped",
    "wall_clock",
]
