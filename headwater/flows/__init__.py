"""The flows: each moves rows from one place to the next, batch by batch, and commits them.

`declared` says which flow a declaration gets. A flow knows its run as a `context.Context`, and neither who
started it nor what else is done to its table.
"""
