"""Whole tables validated by Great Expectations, and the pages that show the results."""
