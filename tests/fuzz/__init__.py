"""Random projects over random records, and two other ways to compute what each of their tables has to be.

A case (`fuzz.make`) is data: definitions, records, and what is done in which order. `fuzz.drive` does it with
the engine's own flows, in this process or in some that are killed (`fuzz.processes`); `fuzz.oracles` computes
the same tables from the records alone, once by Spark's batch engine and once by DuckDB; `fuzz.compare` says
what differs. One that fails is made small (`fuzz.shrink`) and kept in `tests/fuzz_cases/`, which
`tests/test_fuzz.py` does again.

    make fuzz ARGS="--minutes 60"
    make fuzz ARGS="--seed 4711 --cases 1"
"""
