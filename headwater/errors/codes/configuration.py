"""The environment's file `conf/<env>.yaml`, secrets, and options that name them; met by every command."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Configuration = Literal[
    "NO_PROJECT",
    "FOLDER_NOT_EMPTY",
    "UNKNOWN_ENVIRONMENT",
    "CONF_INVALID",
    "LAKE_ON_NETWORK",
    "SECRET_IN_CONF",
    "SECRET_MISSING",
    "SECRET_EXPOSED",
    "BOOTSTRAP_MISSING",
    "KAFKA_OPTION_OF_JAVA",
    "UNKNOWN_BUCKET",
    "UNKNOWN_CONNECTION",
    "INTERVAL_INVALID",
    "START_INVALID",
    "GROUP_WITHOUT_OFFSETS",
    "GROUP_OFFSETS_EXPIRED",
]

MEANINGS: dict[Configuration, Meaning] = {
    "NO_PROJECT": Meaning(
        "ProjectError",
        "There is no project in this folder or above it.",
        "Go into one, or name it with `--project`.",
    ),
    "FOLDER_NOT_EMPTY": Meaning(
        "ProjectError",
        "`headwater init` was given a file, or a folder with something in it.",
        "Name one that is empty or missing.",
    ),
    "UNKNOWN_ENVIRONMENT": Meaning(
        "ConfError",
        "There is no `conf/<env>.yaml` of that name.",
        "Name one of those that there are with `--env`.",
    ),
    "CONF_INVALID": Meaning(
        "ConfError",
        "The file is not YAML, or has an unknown key or a value of another type.",
        "Mend the key that the message names.",
    ),
    "LAKE_ON_NETWORK": Meaning(
        "ConfError",
        "The lake is on a network file system, where locks do not keep two writers apart.",
        "Put it on a disk of this machine.",
    ),
    "SECRET_IN_CONF": Meaning(
        "ConfError",
        "A password or key stands in the file itself.",
        "Write `env:NAME` or `file:PATH` in its place.",
    ),
    "SECRET_MISSING": Meaning(
        "ConfError",
        "The variable or file that a secret is read from is not there, or is empty.",
        "Set it, or change the reference.",
    ),
    "SECRET_EXPOSED": Meaning("ConfError", "Others can read the file of a secret.", "`chmod 600` it."),
    "BOOTSTRAP_MISSING": Meaning(
        "ConfError",
        "The options of a Kafka cluster do not say where it is.",
        "Add `bootstrap.servers`, or say `kafka: embedded`.",
    ),
    "KAFKA_OPTION_OF_JAVA": Meaning(
        "ConfError",
        "An option is one that only Kafka's Java client knows.",
        "Say the same under `librdkafka`.",
    ),
    "UNKNOWN_BUCKET": Meaning(
        "ConfError or ProjectError",
        "Files are taken from a bucket that the environment does not name.",
        "Add it under `s3`.",
    ),
    "UNKNOWN_CONNECTION": Meaning(
        "ProjectError",
        "A table is kept in a PostgreSQL or OpenSearch that the environment does not name.",
        "Add it under `postgres` or `opensearch`.",
    ),
    "INTERVAL_INVALID": Meaning(
        "ConfError or ProjectError",
        "A text is no span of time, or none that Spark knows.",
        "Write one such as `500ms`, `10s` or `10 seconds`.",
    ),
    "START_INVALID": Meaning(
        "ConfError",
        "`--start` is none of what a source can begin at.",
        "Write `earliest`, `latest`, a time, or `group:NAME`.",
    ),
    "GROUP_WITHOUT_OFFSETS": Meaning(
        "ConfError",
        "The consumer group of `--start` has committed no offset of the topic.",
        "Check its name, or begin elsewhere.",
    ),
    "GROUP_OFFSETS_EXPIRED": Meaning(
        "ConfError",
        "Kafka has the records at the consumer group's offset no more, or not yet.",
        "Begin at `earliest`, `latest` or a time.",
    ),
}
