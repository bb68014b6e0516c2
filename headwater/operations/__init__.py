"""What is done to tables beside their flows: rebuild, savepoints, erase, maintenance, replay, validation."""
