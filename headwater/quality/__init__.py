"""Expectations: what rows must be, and what becomes of those that are not.

`suite`     the files in `quality/`, read strictly
`predicate` each row-level expectation as a Spark predicate
`gate`      judges a batch's rows, and accounts for every one
`validate`  whole tables, judged by Great Expectations (`gx`), with `results` and `docs` of it
`suggest`   a first suite, from what a table holds
"""
