"""What is remembered of an embedded broker while its data folder lives: `<data>/broker.json`."""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

LOOPBACK = "127.0.0.1"
# Below the range from which the system gives ports to clients: one that keeps trying to reach a
# stopped broker on a port of that range can end up connected to itself.
ANY_FREE = range(20000, 32000)


@dataclass(frozen=True)
class BrokerState:
    """The broker's address and identity; whether it runs is asked of the system, not noted.

    Attributes:
        port: the clients' port, on the loopback interface.
        controller_port: where the broker talks to its own controller.
        cluster_id: Kafka's id of the cluster, given when the storage was formatted.
    """

    port: int
    controller_port: int
    cluster_id: str

    @property
    def bootstrap(self) -> str:
        """What Kafka calls `bootstrap.servers`."""
        return f"{LOOPBACK}:{self.port}"


def read(data: Path) -> BrokerState | None:
    """The state of a data folder; None where no broker was ever started."""
    path = data / "broker.json"
    return BrokerState(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def write(data: Path, state: BrokerState) -> None:
    """Replace the state at once: a reader sees the old one or the new one."""
    draft = data / "broker.json.new"
    draft.write_text(json.dumps(asdict(state), indent=1) + "\n", encoding="utf-8")
    os.replace(draft, data / "broker.json")


def new_cluster_id() -> str:
    """A random UUID as Kafka writes one: 22 characters of URL-safe base64, never starting with a dash."""
    return "H" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's servers do
        try:
            probe.bind((LOOPBACK, port))
            probe.listen()
        except OSError:
            return False
        return True


def free_port(*, avoid: int = 0) -> int:
    """Any port that is free now and is not `avoid`."""
    return next(port for port in random.sample(ANY_FREE, len(ANY_FREE)) if port != avoid and is_free(port))
