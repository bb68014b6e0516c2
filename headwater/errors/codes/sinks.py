"""Topics, PostgreSQL tables, OpenSearch indices and sinks of your own; a sink that stops holds no
table back.
"""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Sinks = Literal[
    "SINK_UNAVAILABLE",
    "SINK_REFUSES",
    "SINK_REJECTS_ROW",
    "SINK_TARGET_DIFFERS",
    "SINK_TARGET_GONE",
    "SINK_POSITION_LOST",
    "SERVER_NOT_SUPPORTED",
    "CERTIFICATES_NOT_READABLE",
    "NOT_A_SINK",
]

MEANINGS: dict[Sinks, Meaning] = {
    "SINK_UNAVAILABLE": Meaning(
        "SinkUnavailable",
        "A sink's target can't be reached or has no time; it is tried again by itself.",
        "See that it runs.",
    ),
    "SINK_REFUSES": Meaning(
        "FlowError", "A sink's target refuses the request.", "Mend what it names, then run again."
    ),
    "SINK_REJECTS_ROW": Meaning(
        "FlowError", "A sink's target rejects a row.", "Mend the target or the table, as the message says."
    ),
    "SINK_TARGET_DIFFERS": Meaning(
        "FlowError",
        "The table or index that is there does not fit, or its rows were sent by other keys.",
        "Mend it, or let it be made anew.",
    ),
    "SINK_TARGET_GONE": Meaning(
        "SinkUnavailable",
        "The index was removed while the sink wrote; it is made anew by itself.",
        "Nothing needs to be done.",
    ),
    "SINK_POSITION_LOST": Meaning(
        "FlowError",
        "What the target has is not known: what it was sent was removed, or another table stands there.",
        "Drop the table or index, or make the topic again, remove the position that the message names, and "
        "run again.",
    ),
    "SERVER_NOT_SUPPORTED": Meaning(
        "FlowError",
        "The server is another, or an older one, than a sink can write to.",
        "Take one as the message names.",
    ),
    "CERTIFICATES_NOT_READABLE": Meaning(
        "FlowError", "The file of `ca_certs` can't be read.", "Mend the environment."
    ),
    "NOT_A_SINK": Meaning(
        "FlowError",
        "A sink of your own makes something else than a `headwater.connectors.sinks.Sink`.",
        "Return one from `make`.",
    ),
}
