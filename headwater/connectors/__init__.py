"""What lies outside the lake: Kafka, files, decoders of records, sinks, generators."""
