"""The sink that a declaration names."""

from __future__ import annotations

from headwater.connectors import kafka
from headwater.connectors.sinks import Sink as Target
from headwater.errors import FlowError
from headwater.flows.context import Context
from headwater.project.definitions import KafkaSink, OpenSearchSink, OwnSink, PostgresSink, Sink


def made(sink: Sink, context: Context) -> Target:
    """What to open and write to.

    Args:
        sink: as the project declares it.
        context: of the run.

    Raises:
        FlowError: its own function makes none.
    """
    project = context.project
    if isinstance(sink, KafkaSink):
        from headwater.connectors.sinks.kafka import KafkaTopic

        client = kafka.client_options(project.conf, context.bootstrap)
        return KafkaTopic(sink.topic, client, context.stop)
    if isinstance(sink, PostgresSink):
        from headwater.connectors.sinks.postgres import PostgresTable

        connection = project.conf.postgres[sink.connection]
        assert connection is not False
        return PostgresTable(connection, sink.into)
    if isinstance(sink, OpenSearchSink):
        from headwater.connectors.sinks.opensearch import OpenSearchIndex

        options = project.conf.opensearch[sink.connection]
        assert options is not False
        return OpenSearchIndex(options, sink.into)
    assert isinstance(sink, OwnSink)
    own = sink.make()
    if not isinstance(own, Target):
        raise FlowError(
            f"{sink.where}: make gave a {type(own).__name__}",
            code="NOT_A_SINK",
            where=sink.where,
            hint="give a headwater.connectors.sinks.Sink",
        )
    return own
