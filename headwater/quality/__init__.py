"""Expectations: what rows must be, and what becomes of those that are not.

They judge the rows that they are given and account for each. They commit nothing, and know no flow.
"""
