"""The flows: what moves rows from one place to the next.

`source`    Kafka → bronze, by Structured Streaming
`derived`   a table's new versions → the table below it
`realtime`  Kafka → Kafka, in milliseconds
`publish`   a table's new versions → Kafka
"""
