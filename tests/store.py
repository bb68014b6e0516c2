"""A real object store for tests: rclone, which serves a folder as Amazon's S3 does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

RCLONE = str(Path(sys.executable).parent / "rclone")
ACCESS, SECRET = "headwater", "a-secret-that-is-none"


class Store:
    """A server of its own, on a free port of 127.0.0.1; each folder in `root` is a bucket.

    A context manager, which ends it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def options(self) -> dict[str, Any]:
        """How its buckets are reached, in the words of `conf/<env>.yaml`."""
        return {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "region": "us-east-1",
            "access_key": ACCESS,
            "secret_key": f"file:{self._secret()}",
        }

    def conf(self, bucket: str, **others: Any) -> bytes:
        """The section of an environment that says so."""
        lines = "".join(f"    {key}: {value}\n" for key, value in {**self.options, **others}.items())
        return f"kafka: embedded\ns3:\n  {bucket}:\n{lines}".encode()

    def start(self) -> None:
        """Have it running and answering."""
        keys = f"{ACCESS},{SECRET}"
        address = ["--addr", f"127.0.0.1:{self.port}", "--auth-key", keys]
        fresh = ["--dir-cache-time", "0s", "--config", os.devnull]  # what lies there now, not a minute ago
        with (self.root.parent / f"{self.root.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [RCLONE, "serve", "s3", *address, *fresh, str(self.root)], stdout=log, stderr=log
            )
        deadline = time.monotonic() + 300
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None and time.monotonic() < deadline, log.name
            time.sleep(0.02)

    def stop(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def client(self) -> pafs.S3FileSystem:
        """A client of its own."""
        return pafs.S3FileSystem(
            access_key=ACCESS,
            secret_key=SECRET,
            region="us-east-1",
            endpoint_override=self.options["endpoint"],
        )

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _secret(self) -> Path:
        path = self.root.parent / f"{self.root.name}.secret"
        path.write_text(SECRET)
        path.chmod(0o600)
        return path
