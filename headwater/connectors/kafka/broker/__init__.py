"""Kafka without containers: the embedded broker, and the topics of any broker."""

from headwater.connectors.kafka.broker.embedded import BrokerStatus, EmbeddedBroker
from headwater.connectors.kafka.extent import Kept, kept
from headwater.connectors.kafka.topics import (
    Topic,
    TopicInfo,
    TopicOutcome,
    create_topics,
    end_offsets,
    list_topics,
)

__all__ = [
    "BrokerStatus",
    "EmbeddedBroker",
    "Kept",
    "Topic",
    "TopicInfo",
    "TopicOutcome",
    "create_topics",
    "end_offsets",
    "kept",
    "list_topics",
]
