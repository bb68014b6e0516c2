"""What several test files share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of a real broker that lives as long as the tests; use topics of your own."""
    data: Path = tmp_path_factory.mktemp("kafka")
    embedded = EmbeddedBroker(data, port=0, heap="512m")
    try:
        yield embedded.start()
    finally:
        embedded.stop()
