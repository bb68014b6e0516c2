"""Which faults a later try may not meet, and which end a run."""

from __future__ import annotations

import os
import re

from py4j.protocol import Py4JError

from headwater.errors import FlowError, Unavailable
from headwater.errors.causes import known
from headwater.flows.context import Context

# Java exceptions, anywhere in the chain of causes, that a later try may not meet.
TRANSIENT = (
    "org.apache.kafka.common.errors.TimeoutException",
    "org.apache.kafka.common.errors.DisconnectException",
    "org.apache.kafka.common.errors.NetworkException",
    "org.apache.kafka.common.errors.RetriableException",
    "org.apache.kafka.clients.consumer.internals.NoAvailableBrokersException",
    "org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient",
    "java.net.ConnectException",
)
_MAY_PASS = re.compile(r"\bOutOfMemoryException: |\bSystemError: AST constructor")


def has_failed(name: str) -> FlowError:
    """What who asks something of a flow that has failed is told."""
    hint = "mend it and start that one again"
    said = f"{name} has failed in process {os.getpid()}"
    return FlowError(said, code="FLOW_HAS_FAILED", table=name, hint=hint)


def is_waiting(name: str, why: str) -> FlowError:
    """What who asks something of a flow is told while it waits for what can't be reached."""
    said = f"{name} waits in process {os.getpid()}: {why}"
    return FlowError(said, code="FLOW_WAITS", table=name, hint="ask again once it goes on")


def jvm_has_ended(name: str) -> FlowError:
    """What is said of a flow whose run has lost its JVM."""
    hint = "run again to go on where it stopped"
    return FlowError("the JVM has ended", code="JVM_ENDED", table=name, hint=hint)


def transient(error: BaseException) -> bool:
    """Whether trying again later may help: Kafka, a sink or a store can't be reached, or is too slow."""
    if (found := known(error)) is not None:
        return isinstance(found, Unavailable)
    text = str(error)
    return any(name in text for name in TRANSIENT)


def may_pass(error: BaseException) -> bool:
    """Whether a batch may be done by itself that failed beside others: DuckDB had no room for all of them, or
    two functions had Python parse a text at once (python/cpython#106905)."""
    return bool(_MAY_PASS.search(f"{type(error).__name__}: {error}"))


def jvm_is_gone(context: Context) -> bool:
    """Whether the JVM of the session answers no more."""
    try:
        context.spark.sparkContext._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr]
    except (Py4JError, OSError):
        return True
    return False
