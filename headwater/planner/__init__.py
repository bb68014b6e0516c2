"""What a definition means: analysed plans, aggregates taken apart, event time, changes of definitions."""
