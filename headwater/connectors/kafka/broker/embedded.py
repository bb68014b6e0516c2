"""One Kafka broker for one machine: KRaft, loopback only, no containers.

`start()` says what happens in order: a running broker is reused; else ports, settings, storage (once),
launch, and waiting until the broker answers. The broker outlives the command that started it.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headwater.common import locks
from headwater.common.wait import until
from headwater.connectors.kafka.broker import process, state
from headwater.connectors.kafka.broker.state import LOOPBACK, BrokerState
from headwater.errors import BrokerError
from headwater.runtime.jars import lock

START_DEADLINE = 60.0  # seconds until a started broker must answer
PORT_DEADLINE = 2.0  # seconds for a port to become free
STOP_DEADLINE = 20.0  # seconds between SIGTERM and SIGKILL

RECONNECT = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}

# Kafka's names. Nothing vanishes by itself: what retention there is, the lake has.
SETTINGS: dict[str, str | int] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.partitions": 1,
    "auto.create.topics.enable": "false",
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # After a kill the controller holds the dead broker's place for one session (Kafka's default: 9 s).
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 1000,
    "log.retention.ms": -1,
    "log.retention.bytes": -1,
    "log.segment.bytes": 128 * 1024 * 1024,
}


@dataclass(frozen=True)
class BrokerStatus:
    """What is known of an embedded broker.

    Attributes:
        running: whether its process lives.
        pid: of the running broker.
        bootstrap: its address, also while it is stopped; None where it was never started.
        data: its data folder.
        version: of Kafka.
    """

    running: bool
    pid: int | None
    bootstrap: str | None
    data: Path
    version: str


class EmbeddedBroker:
    """The broker of one data folder.

    Args:
        data: its folder: `broker.json`, `server.properties`, `broker.log`, and Kafka's files in `logs/`.
        port: the clients' port on 127.0.0.1; 0 chooses a free one and keeps it while the folder lives.
        heap: the JVM's heap, as -Xmx takes it.
    """

    def __init__(self, data: Path, port: int = 0, heap: str = "512m") -> None:
        self.data = data.resolve()
        self.port = port
        self.heap = heap
        self.settings = self.data / "server.properties"
        self.log = self.data / "broker.log"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Have the broker running and answering (about 3 s if it isn't); returns its bootstrap servers.

        Raises:
            BrokerError: its port is taken, it ended, or it did not answer within 60 s.
            SetupError: no suitable Java, or a JVM library is missing.
        """
        self.data.mkdir(parents=True, exist_ok=True)
        with self._alone():
            known = state.read(self.data)
            if known is not None:
                with process.held(self.settings) as running:
                    if running is not None and self._answers(known, running):
                        return known.bootstrap
            known = self._with_free_ports(known)
            state.write(self.data, known)
            self._write_settings(known)
            self._format_once(known)
            self._launch(known)
            return known.bootstrap

    def stop(self) -> bool:
        """End the broker, giving it 20 s to close its files; whether it was running.

        Raises:
            BrokerError: the process could not be ended.
        """
        if not self.data.is_dir():
            return False
        with self._alone():
            return self._end()

    def status(self) -> BrokerStatus:
        """Whether it runs, and where; starts nothing."""
        known = state.read(self.data)
        pid = process.find(self.settings)
        return BrokerStatus(
            pid is not None, pid, known.bootstrap if known else None, self.data, kafka_version()
        )

    def _with_free_ports(self, known: BrokerState | None) -> BrokerState:
        port = self.port or (known.port if known else state.free_port())
        # A broker that was killed a moment ago still holds its port until the system has cleaned up.
        if not until(lambda: state.is_free(port), within=PORT_DEADLINE):
            kept = "" if self.port else f" (the port that {self.data / 'broker.json'} keeps)"
            raise BrokerError(
                f"port {port} is taken by another program{kept}",
                code="PORT_TAKEN",
                file=self.settings,
                hint="end it, or set another as broker.port",
            )
        if known is None:
            return BrokerState(port, state.free_port(avoid=port), state.new_cluster_id())
        if known.controller_port == port or not state.is_free(known.controller_port):
            known = replace(known, controller_port=state.free_port(avoid=port))
        return replace(known, port=port)

    def _write_settings(self, known: BrokerState) -> None:
        controller = f"{LOOPBACK}:{known.controller_port}"
        settings = SETTINGS | {
            "listeners": f"PLAINTEXT://{known.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{known.bootstrap},CONTROLLER://{controller}",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self._storage),
        }
        text = "".join(f"{key}={_escaped(str(value))}\n" for key, value in settings.items())
        self.settings.write_text(text, encoding="utf-8")

    def _format_once(self, known: BrokerState) -> None:
        if (self._storage / "meta.properties").is_file():
            return
        arguments = ("--standalone", "--cluster-id", known.cluster_id, "--config", str(self.settings))
        done = process.run_storage_tool("format", *arguments)
        if done.returncode:
            raise BrokerError(
                f"{self._storage}: could not be formatted for Kafka: {_last_lines(done.stdout)}",
                code="BROKER_NOT_STARTED",
                file=self._storage,
            )

    def _launch(self, known: BrokerState) -> None:
        if self.log.exists():
            os.replace(self.log, self.log.with_suffix(".log.1"))
        self._child = process.launch(self.settings, self.log, self.heap)
        handle = os.pidfd_open(self._child.pid)
        try:
            if not self._answers(known, handle):
                raise BrokerError(
                    self._failure(f"ended with exit code {self._child.wait()}"),
                    code="BROKER_NOT_STARTED",
                    file=self.log,
                )
        except BrokerError:
            process.end(handle, patience=0)
            raise
        finally:
            os.close(handle)

    def _answers(self, known: BrokerState, handle: int) -> bool:
        """True once the broker answers, False when its process has ended (it may just have been killed)."""
        client = AdminClient({"bootstrap.servers": known.bootstrap, "log_level": 0, **RECONNECT})
        deadline = time.monotonic() + START_DEADLINE
        while time.monotonic() < deadline:
            answered = _names_itself(client, within=0.5)
            if process.ended(handle, 0):
                return False
            if answered:
                return True
        raise BrokerError(
            self._failure(f"did not answer on {known.bootstrap} within {START_DEADLINE:.0f} s"),
            code="BROKER_NOT_STARTED",
            file=self.log,
        )

    def _end(self) -> bool:
        with process.held(self.settings) as handle:
            if handle is None:
                return False
            if not process.end(handle, patience=STOP_DEADLINE):
                raise BrokerError(
                    f"{self.data}: the broker did not end on SIGKILL",
                    code="BROKER_NOT_STOPPED",
                    file=self.data,
                    hint="look at its process",
                )
        if self._child is not None:
            self._child.wait()
        return True

    def _failure(self, what: str) -> str:
        lines = _last_lines(self.log.read_text(encoding="utf-8", errors="replace"))
        return f"the embedded broker {what}: {lines or 'its log is empty'}; read {self.log}"

    @property
    def _storage(self) -> Path:
        return self.data / "logs"

    def _alone(self) -> AbstractContextManager[None]:
        """One start or stop at a time."""
        return locks.alone(self.data / "broker.lock")


def kafka_version() -> str:
    """The broker's version, as the lock pins it."""
    names = (jar.name for jar in lock.parse(lock.lock_file().read_text(encoding="utf-8")))
    return next(name for name in names if name.startswith("kafka_2.13-"))[len("kafka_2.13-") : -len(".jar")]


def _names_itself(client: AdminClient, *, within: float) -> bool:
    """Whether the broker answers with metadata that names itself: before that, it takes no topics."""
    try:
        return bool(client.list_topics(timeout=within).brokers)
    except KafkaException:
        return False  # not yet: the caller asks again until its deadline


def _last_lines(text: str) -> str:
    """The last lines of a log that are not of a stack trace, as one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\t")]
    return " | ".join(lines[-3:])[-600:]


def _escaped(value: str) -> str:
    """A value as Java's properties files take it."""
    return value.replace("\\", "\\\\")
