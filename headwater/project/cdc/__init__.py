"""Tables that follow from changes: `AUTO CDC`, as it is said in SQL and in Python.

A source sends inserts, updates and deletes of rows, perhaps twice, late or in another order than it made
them. Such a table is two:

    <table>_changes  each change as it came, with its `_sequence`: a streaming table, whose rows are appended
    <table>          the rows that follow from them (SCD 1), or all that ever were, with their times (SCD 2):
                     a view of `<table>_changes`, of which each key's rows follow from that key's changes

So whatever comes late is put in its place, and the order in which changes came plays no part: they are
ordered by (sequence, deletes behind updates, content). See docs/change-data.md.
"""
