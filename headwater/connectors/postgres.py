"""What every client of PostgreSQL shares: how it connects, how long it waits, and what an error says.

https://www.postgresql.org/docs/current/libpq-connect.html (a host that has gone: `tcp_user_timeout` where
something was sent, keepalives where nothing was)
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Timer
from typing import Any

import psycopg

from headwater.project.conf import PostgresOptions

DEFAULTS: PostgresOptions = {
    "connect_timeout": 10,  # seconds, as the next two
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds
    "application_name": "headwater",
}
_FINAL = (  # what a server, or a pool before it, says where it lets nobody in; all else it may say passes
    "authentication failed",
    "authentif",  # German, French
    "password",
    "certificate",
    "pg_hba.conf",
    "not currently accepting",
    "unrecognized",
    "invalid value",
    "does not exist",
    "no such",
    "not permitted",
    "permission denied",
    "unsupported",
)


def said(error: psycopg.Error) -> str:
    """What an error says, without a value of a row, or how we connect."""
    return error.diag.message_primary or (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def answering(connection: psycopg.Connection[Any], within: float) -> Iterator[None]:
    """End the connection of a server that does not answer.

    Args:
        connection: what is asked by.
        within: how long it may take, in seconds.

    Raises:
        psycopg.OperationalError: it took longer.
    """
    silent = Event()

    def end() -> None:
        silent.set()
        with suppress(OSError):
            ours.shutdown(socket.SHUT_RDWR)

    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        timer = Timer(within, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except psycopg.Error:
            if silent.is_set():
                raise psycopg.OperationalError(f"no answer within {within:g} s") from None
            raise
        finally:
            timer.cancel()


def may_pass(error: psycopg.Error) -> bool:
    """Whether waiting may mend it: the server is away, and did not say no."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not _refused(error)


def _refused(error: psycopg.Error) -> bool:
    """Whether the server said no (a password, a right, a limit), which waiting does not mend."""
    if error.sqlstate is None:  # it was not let in: then there is a text and no state
        return "FATAL: " in str(error) and any(final in str(error).lower() for final in _FINAL)
    return error.sqlstate.startswith(("28", "3D", "42", "54", "55000"))
