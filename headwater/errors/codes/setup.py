"""What `make setup` provides: Java and the libraries of the JVM."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Setup = Literal[
    "JAVA_MISSING",
    "PYSPARK_MISSING",
    "JAR_MISSING",
    "JAR_NOT_FETCHED",
    "JAR_DIFFERS",
    "JAR_TWICE",
    "CLASS_ARCHIVE_NOT_MADE",
]

MEANINGS: dict[Setup, Meaning] = {
    "JAVA_MISSING": Meaning("SetupError", "There is no Java 17 or 21.", "Install it, or set `JAVA_HOME`."),
    "PYSPARK_MISSING": Meaning("SetupError", "PySpark is not installed.", "`make setup`."),
    "JAR_MISSING": Meaning(
        "SetupError",
        "A library of the JVM is missing, or is not the file that was verified.",
        "Run the command that the message names.",
    ),
    "JAR_NOT_FETCHED": Meaning(
        "SetupError",
        "A library of the JVM could not be had.",
        "Check the network, the proxy or `HEADWATER_IVY_SETTINGS`.",
    ),
    "JAR_DIFFERS": Meaning(
        "SetupError", "A library of the JVM is another file than the lock names.", "Check where it came from."
    ),
    "JAR_TWICE": Meaning(
        "SetupError", "A library is one that PySpark brings itself.", "Exclude it in `spark.xml`."
    ),
    "CLASS_ARCHIVE_NOT_MADE": Meaning(
        "HeadwaterError",
        "Java's archive of classes could not be made.",
        "Nothing breaks without it: starts are slower.",
    ),
}
