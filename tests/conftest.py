"""What several test files share."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import quick  # noqa: F401
from pyspark.sql import SparkSession
from where import Where

from headwater import testing
from headwater.connectors.kafka.broker import EmbeddedBroker
from headwater.project.conf import Conf
from headwater.runtime import sessions

# A worker of pytest-xdist is a `python -c`, whose `__main__` has neither file nor spec. PySpark takes such a
# process for a run of its doctests, and ends it on an import of pyspark.sql.connect, which Great Expectations
# tries.
if not hasattr(sys.modules["__main__"], "__file__"):
    sys.modules["__main__"].__spec__ = ModuleSpec("__main__", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "write what each file took to tests/durations.json, by which the longest run first"
    parser.addoption("--note-durations", action="store_true", help=about)
    parser.addoption("--seed", type=int, help="run the simulator's schedule of this seed, and no others")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Where(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with many kills may take longer than others, which have ten minutes (pyproject.toml)."""
    for item in items:
        if item.get_closest_marker("torture") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1800))


def pytest_collection_finish() -> None:
    """What imports have made stays: the collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of a real broker that lives as long as the tests; use topics of your own."""
    data: Path = tmp_path_factory.mktemp("kafka")
    embedded = EmbeddedBroker(data, port=0, heap="512m")
    try:
        yield embedded.start()
    finally:
        embedded.stop()


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The Spark session of the tests: there is one in a process."""
    return sessions.start(Conf())


@pytest.fixture(scope="session")
def interpreted(spark: SparkSession) -> SparkSession:
    """A session that does not compile its queries, which takes longer than a few rows do."""
    return testing.session()


@pytest.fixture(autouse=True)
def _begun_interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """What begins Spark itself, such as a rebuild, gets that session too where a test has asked for it."""
    with pytest.MonkeyPatch.context() as patch:
        if "interpreted" in request.fixturenames:
            session = request.getfixturevalue("interpreted")
            patch.setattr(sessions, "start", lambda conf, **options: session)
        yield
