"""Expectations: what rows must be, and what becomes of those that are not.

`suite`     the files in `quality/`, read strictly
`predicate` each row-level expectation as a Spark predicate
`gate`      judges a batch's rows, and accounts for every one
"""
