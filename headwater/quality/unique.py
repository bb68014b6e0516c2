"""Uniqueness: of the rows with the same key the first stays, in the batch and in the table.

First is by place in Kafka. A row that another rule keeps out of the table is not judged: nothing is its like
there, and no other row is a later one because of it.
Each batch is compared with the key columns of the whole table: a cost that grows with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater import plans
from headwater.decode import SOURCE
from headwater.errors import ProjectError
from headwater.quality.arguments import ALL, Arguments
from headwater.quality.suite import Rule

TYPES = ("expect_column_values_to_be_unique", "expect_compound_columns_to_be_unique")

_RANK, _KNOWN = "__rank", "__known"


@dataclass(frozen=True)
class Unique:
    """One rule of uniqueness.

    Attributes:
        rule: the expectation.
        keys: its columns.
        seen: which rows it sees.
        order: what puts rows of one key in order, so that it is the same whenever they are judged.
    """

    rule: Rule
    keys: tuple[str, ...]
    seen: Column
    order: tuple[Column, ...]

    def mark(self, rows: DataFrame, clean: Column, written: DataFrame | None, name: str) -> DataFrame:
        """The rows and a column `name`: whether they fail the rule.

        Args:
            rows: those of a batch.
            clean: which of them no other rule keeps out of the table.
            written: what the table holds.
            name: of the column.
        """
        keys = [plans.named(key) for key in self.keys]
        counted = self.seen & clean
        window = Window.partitionBy(*keys).orderBy(F.when(counted, 0).otherwise(1), *self.order)
        ranked = rows.withColumn(_RANK, F.row_number().over(window))
        fails = F.col(_RANK) > 1
        if written is not None:
            known = (
                written.where(self.seen)
                .select(*[key.alias(f"__key{at}") for at, key in enumerate(keys)])
                .distinct()
            )
            same = reduce(and_, [key.eqNullSafe(F.col(f"__key{at}")) for at, key in enumerate(keys)])
            ranked = ranked.join(known.withColumn(_KNOWN, F.lit(True)), same, "left")
            fails = fails | F.col(_KNOWN).isNotNull()
        marked = ranked.withColumn(name, F.coalesce(counted & fails, F.lit(False)))
        return marked.select(*map(plans.named, rows.columns), name)


def compile(rule: Rule, columns: StructType) -> Unique:
    """A rule of uniqueness.

    Raises:
        ProjectError: it does not fit the table, or the table's rows have no order to tell the first by.
    """
    arguments = Arguments(rule, columns)
    if SOURCE not in columns.fieldNames():
        raise ProjectError(
            f"{rule.where}: {rule.id} needs the column {SOURCE} to tell which row was first; keep it"
        )
    if rule.type == TYPES[0]:
        column, _ = arguments.column()
        keys, seen = (str(arguments.need("column")),), column.isNotNull()
    else:
        found = [column for column, _ in arguments.columns()]
        keys, seen = tuple(arguments.need("column_list")), arguments.seen(found, ALL)
    condition = arguments.condition()
    arguments.check()
    plain = [plans.named(f.name) for f in columns if "map<" not in f.dataType.simpleString()]
    order = (F.col(SOURCE), F.xxhash64(*plain))
    return Unique(rule, keys, seen if condition is None else condition & seen, order)
