"""A real PostgreSQL server for tests, from Debian's package, installed where we may."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg

PASSWORD = "a password that is no secret"
INSTALLED = Path("/usr/lib/postgresql")
_USER = "postgres"  # PostgreSQL refuses to run as root


def programs() -> Path:
    """The folder of the newest server's programs; the package is installed where it is missing and we may."""
    for tried in range(2):
        found = sorted(INSTALLED.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
        if found:
            return found[-1].parent
        if tried == 0 and os.geteuid() == 0 and shutil.which("apt-get"):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["update"], ["install", "--yes", "--no-install-recommends", "postgresql"]):
                subprocess.run(
                    ["apt-get", "--quiet", *command], env=environment, check=True, capture_output=True
                )
    raise AssertionError("these tests need PostgreSQL 15 or later; run: apt-get install --yes postgresql")


class Server:
    """A server of its own: data in a folder, a free port on 127.0.0.1, the database `postgres`."""

    def __init__(self) -> None:
        self._programs = programs()
        self._root = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as = {"user": _USER, "group": _USER, "extra_groups": []}
            shutil.chown(self._root, _USER, _USER)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        secret = self._root / "password"
        secret.write_text(PASSWORD)
        if self._as:
            shutil.chown(secret, _USER, _USER)
        self._data = self._root / "data"
        initdb = [
            self._programs / "initdb",
            "--pgdata",
            self._data,
            "--username",
            _USER,
            "--encoding",
            "UTF8",
        ]
        more = ["--auth", "scram-sha-256", "--pwfile", secret, "--no-sync", "--locale", "C"]
        subprocess.run(
            [*map(str, initdb), *map(str, more)], check=True, capture_output=True, cwd=self._root, **self._as
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def options(self) -> dict[str, str | int]:
        """How to connect, in libpq's words."""
        where: dict[str, str | int] = {"host": "127.0.0.1", "port": self.port, "dbname": "postgres"}
        return {**where, "user": _USER, "password": PASSWORD}

    def start(self) -> None:
        """Have it running and answering."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._root,
            "fsync": "off",
            "TimeZone": "UTC",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *flags],
                stdout=log,
                stderr=log,
                cwd=self._root,
                **self._as,
            )
        deadline = time.monotonic() + 300
        while True:
            try:
                psycopg.connect(**self.options, connect_timeout=2).close()  # type: ignore[arg-type]
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None and time.monotonic() < deadline, self.log()
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """End it, and all it has."""
        self.stop()
        shutil.rmtree(self._root)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query gives."""
        with psycopg.connect(**self.options, autocommit=True) as connection:  # type: ignore[arg-type]
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []

    def log(self) -> str:
        return (self._root / "log").read_text(errors="replace")[-2_000:]
