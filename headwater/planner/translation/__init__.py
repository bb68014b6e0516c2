"""What a definition makes of few rows, carried out by DuckDB where that gives what Spark gives.

A query of few rows takes Spark 50 to 200 ms however few they are, DuckDB 2 to 10. `expressions` and
`aggregates` know the functions that are the same in both, on the types on which they are; `relations` the
operators. All else is Spark's, as is a batch that DuckDB refuses (a sum or a number that is too large, a
division by zero): there Spark says what it does with it.

Times are TIMESTAMP there, in UTC; intervals of days and shorter are their microseconds. Sums of doubles
depend in their last digits on the order of addition, as they do in Spark.
"""
