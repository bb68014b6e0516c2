"""A project's files, read: definitions, configuration, suites, and what is wrong with them."""
