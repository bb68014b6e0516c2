"""Small things that know nothing of tables: durations, listings, files, progress."""
