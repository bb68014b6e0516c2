"""Waiting for a condition that can only be asked for: often, and never for ever."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed


def until(condition: Callable[[], bool], *, within: float) -> bool:
    """Ask every 20 ms for up to `within` seconds; whether the condition came true."""
    ask = Retrying(
        retry=retry_if_result(lambda true: not true),
        stop=stop_after_delay(within),
        wait=wait_fixed(0.02),
        retry_error_callback=lambda _: False,
    )
    return ask(condition)
