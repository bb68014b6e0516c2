"""What every client of PostgreSQL shares: how it connects, and what an error says in our words."""

from __future__ import annotations

import psycopg

from headwater.project.conf import PostgresOptions

DEFAULTS: PostgresOptions = {"connect_timeout": 10, "application_name": "headwater"}
_PASSING = ("starting up", "shutting down", "recovery", "too many", "connection slots")


def said(error: psycopg.Error) -> str:
    """What an error says, without a value of a row, or how we connect."""
    return error.diag.message_primary or (str(error).splitlines() or [type(error).__name__])[0]


def may_pass(error: psycopg.Error) -> bool:
    """Whether waiting may mend it: the server is away, and did not say no."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not _refused(error)


def _refused(error: psycopg.Error) -> bool:
    """Whether the server said no (a password, a database, a right), which waiting does not mend."""
    if error.sqlstate is None:  # it was not let in: then there is a text and no state
        return "FATAL: " in str(error) and not any(passing in str(error) for passing in _PASSING)
    return error.sqlstate.startswith(("28", "3D", "42"))
