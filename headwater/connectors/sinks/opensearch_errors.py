"""OpenSearch's errors in the engine's words, without values of rows; and whether waiting mends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opensearchpy.exceptions import OpenSearchException, TransportError

from headwater.connectors.sinks import Published
from headwater.errors import FlowError, SinkUnavailable

# Where OpenSearch's reasons begin to say values of a row.
_VALUES = (" in document with id", " Preview of field", ". Please correct", ", for input", ": '", ': "')


@contextmanager
def in_our_words(table: Published, index: str) -> Iterator[None]:
    """Errors of the client in our words: none says a value of a row, or how we connect.

    Args:
        table: whose sink met them.
        index: where it writes.

    Raises:
        SinkUnavailable: the cluster can't be reached, or has no time.
        FlowError: it refuses us, or is no OpenSearch.
    """
    try:
        yield
    except TransportError as e:
        status, said = e.status_code, _reason(e)
        untrusted = "CERTIFICATE_VERIFY_FAILED" in str(e.error)
        if not untrusted and (not isinstance(status, int) or passing(status)):
            raise SinkUnavailable(
                f"{table.sink}: {said}", code="SINK_UNAVAILABLE", table=table.name
            ) from None
        raise FlowError(
            f"{table.sink}: OpenSearch refuses {index}: {said}",
            code="SINK_REFUSES",
            table=table.name,
            hint="mend what it names, then run again",
        ) from None
    except OpenSearchException as e:
        raise FlowError(
            f"{table.sink}: no OpenSearch answers there: {type(e).__name__}",
            code="SERVER_NOT_SUPPORTED",
            table=table.name,
        ) from None


def passing(status: int) -> bool:
    """Whether waiting may mend it: too much at once, or the server's own trouble."""
    return status in (408, 429) or status >= 500


def _reason(error: TransportError) -> str:
    """Why, in one line."""
    info = error.info if isinstance(error.info, dict) else {}
    cause = info.get("error")
    if isinstance(cause, dict):
        return f"{cause.get('type')}: {without_values(str(cause.get('reason')))}"
    if isinstance(error.status_code, int):
        return {401: "user or password is wrong", 403: "the user may not"}.get(
            error.status_code, f"its answer is {error.status_code}"
        )
    return f"{type(error).__name__}: {(str(error.error).splitlines() or [''])[0]}"[:300]


def without_values(reason: str) -> str:
    """A reason as far as it says no value of a row, 300 characters at most."""
    ends = [at for mark in _VALUES if (at := reason.find(mark)) >= 0]
    return reason[: min(ends)] if ends else reason[:300]
