"""Brokers, topics, and what `produce`, `demo` and `kafka` do with them."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Kafka = Literal[
    "BROKER_UNAVAILABLE",
    "BROKER_REFUSES",
    "LOGIN_REFUSED",
    "HOST_UNKNOWN",
    "RECORDS_GONE",
    "BROKER_NOT_EMBEDDED",
    "BROKER_NOT_STARTED",
    "BROKER_NOT_STOPPED",
    "PORT_TAKEN",
    "UNKNOWN_TOPIC",
    "TOPIC_DIFFERS",
    "TOPIC_NOT_CREATED",
    "TOPIC_NOT_READABLE",
    "TOPIC_WITHOUT_LEADER",
    "RECORDS_NOT_DELIVERED",
    "UNKNOWN_GENERATOR",
    "GENERATOR_INCOMPLETE",
    "GENERATOR_FEEDS_NOTHING",
    "FAULTS_INVALID",
    "RATE_INVALID",
    "KAFKA_NOT_IN_RUN",
]

MEANINGS: dict[Kafka, Meaning] = {
    "BROKER_UNAVAILABLE": Meaning(
        "BrokerUnavailable",
        "Kafka does not answer; flows try again by themselves.",
        "See that it runs, and that `bootstrap.servers` is right.",
    ),
    "BROKER_REFUSES": Meaning(
        "BrokerError",
        "Kafka refuses the request for good: rights, or an unknown name.",
        "Mend what it names.",
    ),
    "LOGIN_REFUSED": Meaning(
        "BrokerError",
        "Kafka refuses the login, by SASL or TLS.",
        "Mend user, password or certificates under `kafka` and `librdkafka` in `conf/<env>.yaml`.",
    ),
    "HOST_UNKNOWN": Meaning(
        "BrokerUnavailable",
        "A host's name leads nowhere; flows try again by themselves.",
        "Mend the name (`bootstrap.servers` in `conf/<env>.yaml`), or see that names are resolved there.",
    ),
    "RECORDS_GONE": Meaning(
        "FlowError",
        "Kafka deleted records before they were read.",
        "Let it keep records longer (`retention.ms`), and [accept the gap](operating.md#accepting-a-gap).",
    ),
    "BROKER_NOT_EMBEDDED": Meaning(
        "BrokerError",
        "The environment names a Kafka cluster, so there is no embedded broker.",
        "Name another with `--env`.",
    ),
    "BROKER_NOT_STARTED": Meaning(
        "BrokerError", "The embedded broker ends, or does not answer in time.", "See its log."
    ),
    "BROKER_NOT_STOPPED": Meaning("BrokerError", "The embedded broker does not end.", "Look at its process."),
    "PORT_TAKEN": Meaning(
        "BrokerError",
        "Another program has the embedded broker's port.",
        "End it, or set another as `broker.port`.",
    ),
    "UNKNOWN_TOPIC": Meaning(
        "BrokerError", "There is no topic of that name.", "Take one of those that the message lists."
    ),
    "TOPIC_DIFFERS": Meaning(
        "BrokerError",
        "A topic has other partitions or settings than its generator declares.",
        "Delete the topic, or change the generator.",
    ),
    "TOPIC_NOT_CREATED": Meaning(
        "BrokerError", "A topic could not be made.", "Make it, or change what Kafka objects to."
    ),
    "TOPIC_NOT_READABLE": Meaning(
        "BrokerError", "Records or settings of a topic can't be read.", "Look at the broker and its log."
    ),
    "TOPIC_WITHOUT_LEADER": Meaning(
        "BrokerError", "A topic's partitions have no leader after a while.", "Look at the broker."
    ),
    "RECORDS_NOT_DELIVERED": Meaning(
        "BrokerError",
        "The broker did not acknowledge records that were sent.",
        "See its log and its disk, then run again.",
    ),
    "UNKNOWN_GENERATOR": Meaning(
        "ProjectError", "There is no generator of that name.", "Take one of those that the message lists."
    ),
    "GENERATOR_INCOMPLETE": Meaning("ProjectError", "A generator lacks `topics` or `records`.", "Add it."),
    "GENERATOR_FEEDS_NOTHING": Meaning(
        "ProjectError", "No table reads what the generator sends.", "Add one in `bronze/`."
    ),
    "FAULTS_INVALID": Meaning(
        "ProjectError",
        "The shares of faulty records are no fractions, or add up to more than 1.",
        "Lower them.",
    ),
    "RATE_INVALID": Meaning("ProjectError", "A rate or a count is negative.", "Give one of 0 or more."),
    "KAFKA_NOT_IN_RUN": Meaning(
        "BrokerError", "A flow asks for Kafka in a run that has none.", "That is a defect; please report it."
    ),
}
