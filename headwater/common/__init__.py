"""Small things that no room has for itself: durations, listings, JSON files, progress, reports of batches.

They know nothing of Java, Spark or tables; of Headwater they import its errors and nothing else.
"""
