"""A project's files, read and checked: definitions, configuration, suites, reference tables.

It knows what is declared, as frozen values. What that means and what runs it is for the rooms above to say.
"""
