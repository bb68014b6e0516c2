"""Small things that no room has for itself: durations, locks, differences, listings, JSON files, reports.

They know nothing of Java, Spark or tables; of Headwater they import its errors and nothing else.
"""
