"""Flows under one supervisor, with the maintenance and the validation that run beside them."""
