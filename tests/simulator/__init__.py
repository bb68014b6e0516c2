"""A simulation of the commit protocol: the engine's own classes, over a store that loses, tears and delays
what processes do, by a clock that nobody waits for.

One seed is one schedule: `python -m tests.simulator SEED` runs it and shows its steps. `world` has processes,
one of which runs at a time, and a clock; `medium` is a store with faults; `flows` a project: a source, a
table with a quarantine, an aggregate; `actors` is what processes do; `schedule` draws from a seed who does
what and what happens to them; `engine` puts the engine into a world; `invariants` says what must hold.
"""
