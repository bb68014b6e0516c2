"""Windows that Spark has no function for: cumulative ones, which begin together and grow by steps.

In SQL `cumulative_windows(at, size, step)` is a function of every definition, in Python it is
`headwater.cumulative_windows`. Both give the windows of one instant, to be exploded to one row for each.
"""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from headwater.runtime import catalyst

NAME = "cumulative_windows"
# The windows of `at` begin at the last multiple of `size` since the epoch (UTC), and end at those multiples
# of `step` after that which lie after `at`, the last one at `size`.
_BEGIN = "unix_micros({at}) - pmod(unix_micros({at}), {size})"
_LENGTH = "least(k * {step}, {size})"
_ONE = f"named_struct('start', timestamp_micros({_BEGIN}), 'end', timestamp_micros({_BEGIN} + {_LENGTH}))"
_STEPS = "sequence(pmod(unix_micros({at}), {size}) DIV {step} + 1, ({size} - 1) DIV {step} + 1)"
_WINDOWS = f"transform({_STEPS}, k -> {_ONE})"
_MICROS = "unix_micros(TIMESTAMP'1970-01-01 00:00:00+00:00' + {0})"
_FUNCTION = (
    f"CREATE OR REPLACE TEMPORARY FUNCTION {NAME}"
    "(at TIMESTAMP, size INTERVAL DAY TO SECOND, step INTERVAL DAY TO SECOND) "
    "RETURNS ARRAY<STRUCT<start: TIMESTAMP, end: TIMESTAMP>> "
    f"RETURN {_WINDOWS.format(at='at', size=_MICROS.format('size'), step=_MICROS.format('step'))}"
)


def cumulative_windows(column: str, *, size: str, step: str) -> Column:
    """The windows of `size` that grow by `step` and hold an instant: ARRAY<STRUCT<start, end>>, times in UTC.

    Explode them to a column `window` and group by that:
    `rows.withColumn("window", F.explode(hw.cumulative_windows("event_time", size="1 day", step="1 hour")))`

    Args:
        column: the instant.
        size: how far the windows grow, such as `1 day`; they begin at multiples of it since the epoch.
        step: by how much each is longer than the one before, such as `1 hour`; the last ends at `size`.
    """
    micros = {name: _MICROS.format(f"INTERVAL '{span}'") for name, span in (("size", size), ("step", step))}
    return F.expr(_WINDOWS.format(at=catalyst.quoted(column), **micros))


def register(spark: SparkSession) -> None:
    """Let SQL of this session call `cumulative_windows`."""
    spark.sql(_FUNCTION)
