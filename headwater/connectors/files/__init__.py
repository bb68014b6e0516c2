"""Files as a source of records: which there are, what is in them, and which of them a table has taken."""

CLUSTER = "files"  # of all rows that come from files: no cluster of Kafka's may have the name
FILES = f"{CLUSTER}:"  # before what has the place of a topic, in what a commit says was consumed
