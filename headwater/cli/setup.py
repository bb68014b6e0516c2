"""`headwater setup`."""

from __future__ import annotations


def setup() -> None:
    """Get what Java needs, once for a machine or an image: its libraries, and archives of their classes."""
    from headwater.run.prepare import prepare

    prepare(again=True)
