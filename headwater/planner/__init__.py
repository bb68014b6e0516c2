"""What a definition means: analysed plans, aggregates taken apart, event time, changes of definitions.

It says how a table can be kept up to date, and refuses what can't be. It commits nothing, and knows no flow.
"""
