"""Flows under one supervisor, with the maintenance and the validation that run beside them; and the demo.

It takes the leases and starts the threads, and knows nothing of the command line.
"""
