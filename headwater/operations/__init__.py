"""What people ask to be done to tables: rebuild, savepoints, erase, maintain, backfill, replay, validation.

One that writes takes the table's lease, or asks the process that has it by a file (`storage.mailbox`). None
of them knows the supervisor.
"""
