"""Where tables lie and how they are written: lake and catalog, logs, commits, leases, ranges of versions.

It knows tables by their name, place and columns, and nothing of the definitions that they are made by.
"""
