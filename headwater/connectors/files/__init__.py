"""Files as a source of records: which there are, what is in them, and which of them a table has taken."""
