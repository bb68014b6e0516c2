"""A real OpenSearch for tests: the server's jars, checked as the product's are, and one node of it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError, OpenSearchException
from opensearchpy.helpers import scan

from headwater.common import locks
from headwater.project.conf import OpenSearchOptions
from headwater.runtime import jars
from headwater.runtime.jars import ivy, lock
from headwater.runtime.java import java

HERE = Path(__file__).parent
USER, ADMIN = "headwater", "admin"  # one that may what docs/sinks.md says, one that may everything
PASSWORD = "a password that is no secret"
_HASH = "$2y$12$8OhbInBfisuXsBEuUcfoeeqQagRQ2PDgixBPKzuqOUViNoTgQHkhO"  # its bcrypt

NETTY = """description=HTTP
version=2.19.1
name=transport-netty4
classname=org.opensearch.transport.Netty4Plugin
java.version=11
opensearch.version=2.19.1
has.native.controller=false
"""
USERS = f"""_meta: {{type: internalusers, config_version: 2}}
{USER}: {{hash: "{_HASH}"}}
{ADMIN}: {{hash: "{_HASH}", backend_roles: [admin]}}
"""
ROLES = """_meta: {type: roles, config_version: 2}
sink:
  cluster_permissions: ["cluster:monitor/main", "indices:data/write/bulk"]
  index_permissions:
    - index_patterns: ["headwater_sinks", "gold.*"]
      allowed_actions: [create_index, get, index, delete, "indices:admin/get", "indices:admin/mapping/put"]
"""
MAPPING = f"""_meta: {{type: rolesmapping, config_version: 2}}
sink: {{users: [{USER}]}}
all_access: {{users: [{ADMIN}]}}
"""


def downloaded() -> Path:
    """The folder of the server's files, each as opensearch.lock says it; resolved where it is missing."""
    text = (HERE / "opensearch.lock").read_text()
    folder = jars.jars_folder().parent / lock.lock_hash(text)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locks.alone(folder.parent / ".lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=jars.WORK) as work:
                problems = ivy.retrieve("opensearch", Path(work), HERE)
                assert not problems, problems
                _check(Path(work) / "opensearch", text)
                (Path(work) / "opensearch").rename(folder)
    _check(folder, text)
    return folder


def _check(folder: Path, text: str) -> None:
    want = dict(reversed(line.split()) for line in text.splitlines())
    got = {path.name: lock.sha256(path) for path in folder.iterdir()}
    assert got == want, (
        f"{folder}: not what tests/opensearch.lock says: {set(got.items()) ^ set(want.items())}"
    )


class Server:
    """A node of its own: data in a folder, free ports on 127.0.0.1.

    Args:
        secured: with users and TLS, which takes 6 s more to start.
    """

    def __init__(self, *, secured: bool = False) -> None:
        self.secured = secured
        self._root = Path(tempfile.mkdtemp(prefix="headwater-opensearch-"))
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            self.port, transport = one.getsockname()[1], two.getsockname()[1]
        files = downloaded()
        netty = [path for path in files.glob("*.jar") if path.name.startswith(("netty", "transport"))]
        self._classes = [path for path in sorted(files.glob("*.jar")) if path not in netty]
        module = self._root / "modules" / "transport-netty4"
        module.mkdir(parents=True)
        for path in netty:
            shutil.copy(path, module)
        (module / "plugin-descriptor.properties").write_text(NETTY)
        (module / "plugin-security.policy").write_text("grant { permission java.security.AllPermission; };")
        settings = {
            "discovery.type": "single-node",
            "network.host": "127.0.0.1",
            "http.port": self.port,
            "transport.port": transport,
            "path.data": self._root / "data",
            "path.logs": self._root / "logs",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
        }
        (self._root / "plugins").mkdir()
        self._conf = self._root / "config"
        self._conf.mkdir()
        if secured:
            settings |= self._secure(next(files.glob("*.zip")))
        lines = (f"{key}: {value}\n" for key, value in settings.items())
        (self._conf / "opensearch.yml").write_text("".join(lines))
        (self._conf / "log4j2.properties").write_text(
            "appender.console.type = Console\nappender.console.name = console\nrootLogger.level = warn\n"
            "rootLogger.appenderRef.console.ref = console\n"
        )
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    def _secure(self, plugin: Path) -> dict[str, Any]:
        """Install the security plugin with our users; its settings."""
        unpacked = self._root / "plugins" / "opensearch-security"
        with zipfile.ZipFile(plugin) as archive:
            archive.extractall(unpacked)
        own = self._conf / "opensearch-security"
        shutil.copytree(unpacked / "config", own)
        for name, text in {"internal_users": USERS, "roles": ROLES, "roles_mapping": MAPPING}.items():
            (own / f"{name}.yml").write_text(text)
        _certificate(self._conf)
        files = {"pemcert": "node.pem", "pemkey": "key.pem", "pemtrustedcas": "node.pem"}
        return {
            f"plugins.security.ssl.{layer}.{kind}_filepath": file
            for layer in ("transport", "http")
            for kind, file in files.items()
        } | {
            "plugins.security.ssl.http.enabled": "true",
            "plugins.security.ssl.transport.enforce_hostname_verification": "false",
            "plugins.security.nodes_dn": '["CN=node"]',
            "plugins.security.allow_default_init_securityindex": "true",
            "plugins.security.audit.type": "noop",
        }

    @property
    def options(self) -> dict[str, Any]:
        """How the environment says to connect."""
        if not self.secured:
            return {"hosts": [f"http://127.0.0.1:{self.port}"]}
        where = {"hosts": [f"https://127.0.0.1:{self.port}"], "ca_certs": str(self._conf / "node.pem")}
        return {**where, "user": USER, "password": PASSWORD}

    def connection(self, **options: Any) -> OpenSearchOptions:
        """The same, as the sink takes it, with some of it changed."""
        return OpenSearchOptions(**{**self.options, **options})

    def client(self) -> OpenSearch:
        """A client that may do everything."""
        options = self.options
        who = (ADMIN, PASSWORD) if self.secured else None
        return OpenSearch(options["hosts"], http_auth=who, ca_certs=options.get("ca_certs"), max_retries=0)

    def start(self) -> None:
        """Have it running and answering."""
        flags = [
            *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={self._root}"),
            *("-Djna.nosys=true", "-Djna.noclasspath=true"),  # by its C library it would refuse to be root
            *(f"-Dopensearch.path.home={self._root}", f"-Dopensearch.path.conf={self._conf}"),
        ]
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(java()), *flags, "org.opensearch.bootstrap.OpenSearch"],
                env={**os.environ, "CLASSPATH": os.pathsep.join(map(str, self._classes))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._root,
            )
        client, deadline = self.client(), time.monotonic() + 300
        while True:
            try:
                if client.cluster.health()["status"] != "red":
                    return
            except OpenSearchException:
                assert self._process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def pause(self, *, go_on: bool = False) -> None:
        """Have it take connections and answer nothing; or go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT if go_on else signal.SIGSTOP)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """End it, and all it has."""
        self.stop()
        shutil.rmtree(self._root)

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        """{id → document} of an index; empty where there is none."""
        client = self.client()
        try:
            client.indices.refresh(index=index)
            return {hit["_id"]: hit["_source"] for hit in _all(client, index)}
        except NotFoundError:
            return {}

    def log(self) -> str:
        return (self._root / "log").read_text(errors="replace")[-2_000:]


def _all(client: OpenSearch, index: str) -> Iterator[dict[str, Any]]:
    return scan(client, index=index, size=5_000)


def _certificate(folder: Path) -> None:
    """node.pem and key.pem: a certificate for 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "node.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
