"""What lies outside the lake: Kafka, files and object stores, decoders of records, sinks, generators.

They hand over records and take rows, and commit nothing: they know neither expectations nor flows.
"""
