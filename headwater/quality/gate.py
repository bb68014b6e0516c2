"""The gate between a table's function and its commit: each row is judged once, in the pass that writes it.

A judged row carries a bit per rule that it fails, its verdict (the strongest action of these rules) and,
where it is held back, itself as JSON. Accounting, per batch: the function's rows = written + dropped +
quarantined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.errors import FlowError, ProjectError
from headwater.project.rule import ACTIONS, Rule
from headwater.project.suite import Suite
from headwater.quality import keyed, measure, predicate
from headwater.quality.measure import Findings
from headwater.quality.tally import Tally
from headwater.runtime import catalyst, in_memory
from headwater.storage.identity import Shares

VERDICT = "__verdict"  # the place of an action in ACTIONS; 0 where the row passes
ROW = "__row"  # the row as JSON, where its verdict is quarantine or fail
DROP, QUARANTINE, FAIL = (ACTIONS.index(action) for action in ("drop", "quarantine", "fail"))
HASH, _KEYED = "__hash", "__keyed"
# Spark's own formats cut times to milliseconds, and rows that differ must differ as JSON too.
_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_WORD = 63  # bits of a BIGINT that are used


class Gate:
    """The rules of one table, ready to judge its rows.

    Args:
        suite: the table's suite.
        columns: what the table's function returns.
        guards: further rules, each with its predicate: true where a row fails, never NULL.

    Raises:
        ProjectError: two rules about keys keep rows out; or see `predicate.failed`.
    """

    def __init__(self, suite: Suite, columns: StructType, guards: Sequence[tuple[Rule, Column]] = ()) -> None:
        judged = [rule for rule in suite.rules if rule.scope == "batch"]
        of_rows = [rule for rule in judged if not rule.of_many and rule.type not in keyed.TYPES]
        self.keyed = [keyed.compile(rule, columns) for rule in judged if rule.type in keyed.TYPES]
        self.keyed.sort(key=lambda one: one.rule.action == "warn")  # after those that keep rows out
        if len(holding := [one.rule for one in self.keyed if one.rule.action != "warn"]) > 1:
            raise ProjectError(
                f"{holding[1].where}: {holding[1].id} keeps rows out by what others hold, as "
                f"{holding[0].id} does: which of them stay would depend on how batches are cut",
                code="EXPECTATIONS_DEPEND",
                where=holding[1].where,
                hint="let one of the two warn, or expect it of a table that reads this one",
            )
        alone = {one.alone for one in self.keyed}
        self.alone = None if () in alone else sorted(alone)  # all by which rows of the table are looked up
        self.measures = [
            measure.compile(rule, columns, F.col(VERDICT) == 0) for rule in judged if rule.of_many
        ]
        self.rules = (*of_rows, *(rule for rule, _ in guards), *(one.rule for one in self.keyed))
        self._table = suite.table
        words = range(0, len(self.rules), _WORD)
        self._words = [f"__failed{at // _WORD}" for at in words]
        bits = [predicate.failed(rule, columns) for rule in of_rows]
        bits += [fails for _, fails in guards]
        self._first_keyed = len(bits)
        bits += [F.lit(False)] * len(self.keyed)
        self._judgement = [
            _bits(bits[at : at + _WORD]).alias(word) for at, word in zip(words, self._words, strict=True)
        ]
        self._verdict = self._strongest().cast("tinyint").alias(VERDICT)
        whole = F.to_json(F.struct(*map(catalyst.named, columns.fieldNames())), _JSON)
        self._row = F.when(F.col(VERDICT) >= QUARANTINE, whole).alias(ROW)
        self.whole = whole.alias(ROW)
        self._own = [*self._words, VERDICT, ROW]

    def judge(self, rows: DataFrame, written: DataFrame | None = None) -> DataFrame:
        """The rows with what the gate knows of each.

        Args:
            rows: what the function returned.
            written: what the table holds; None: nothing. Only rules about keys look at it.
        """
        return self.whole_of(self.verdicts(rows, written))

    def whole_of(self, judged: DataFrame) -> DataFrame:
        """Rows that `verdicts` gave, with those that are held back as JSON."""
        return judged.select("*", self._row)

    def verdicts(self, rows: DataFrame, written: DataFrame | None = None) -> DataFrame:
        """The same but for the rows as JSON."""
        judged = rows.select("*", *self._judgement)
        for at, one in enumerate(self.keyed, start=self._first_keyed):
            word, bit = self._words[at // _WORD], F.lit(1 << at % _WORD).cast("bigint")
            judged = one.mark(judged, self._strongest() == 0, written, _KEYED)
            failing = F.when(F.col(_KEYED), F.col(word).bitwiseOR(bit)).otherwise(F.col(word))
            judged = judged.withColumn(word, failing).drop(_KEYED)
        return judged.select("*", self._verdict)

    def told(self, spark: SparkSession, judged: pa.Table, columns: StructType) -> pa.Table:
        """Rows in memory that `verdicts` gave, by what they are to Spark, which writes those as JSON that are
        held back."""
        hold = pc.greater_equal(judged[VERDICT], QUARANTINE)
        if not pc.any(hold, min_count=0).as_py():
            return judged.append_column(ROW, pa.nulls(len(judged), pa.string()))
        held, others = judged.filter(hold), judged.filter(pc.invert(hold))
        others = others.append_column(ROW, pa.nulls(len(others), pa.string()))
        written = self.whole_of(in_memory.frame(spark, held, columns).coalesce(1)).toArrow()
        return pa.concat_tables([others, written.cast(others.schema)])

    def passed(self, judged: DataFrame) -> DataFrame:
        """Of judged rows, those that the table takes."""
        return judged.where(F.col(VERDICT) == 0).drop(*self._own)

    def metrics(self) -> list[Column]:
        """Aggregates over judged rows, from whose values `tally` makes a tally."""
        verdict = F.col(VERDICT)
        sample = F.first(F.when(verdict == FAIL, F.col(ROW)), ignorenulls=True).alias("sample")
        return [
            F.count("*").alias("rows"),
            F.count_if(verdict == DROP).alias("dropped"),
            F.count_if(verdict == QUARANTINE).alias("quarantined"),
            *([sample] if self._has(FAIL) else []),
            *[F.count_if(self._fails(at)).alias(f"failed{at}") for at in range(len(self.rules))],
            *self.measurements(),
        ]

    def held(self, place: Sequence[Column], most: int) -> Column:
        """An aggregate over judged rows: the first of those for the quarantine, by `place`, which says which
        each is; no more than `most`, as an aggregate is in memory.

        Per row: the columns of `place`, a hash of the row, and the words that say which rules it fails.
        """
        row = F.struct(*place, F.xxhash64(ROW).alias(HASH), *map(F.col, self._words))
        row = F.when(F.col(VERDICT) == QUARANTINE, row)
        return F.call_function("min_by", row, row, F.lit(most))

    def rejected(self, judged: DataFrame, place: Sequence[Column]) -> DataFrame:
        """Of judged rows, those for the quarantine: the columns of `place`, the row as JSON, and in `rules`
        the rules that it fails."""
        rules = [F.when(self._fails(at), F.lit(rule.id)) for at, rule in enumerate(self.rules)]
        found = judged.where(F.col(VERDICT) == QUARANTINE)
        return found.select(*place, ROW, F.array_compact(F.array(*rules)).alias("rules"))

    def measurements(self) -> list[Column]:
        """Those of the metrics that rules about many rows at once need."""
        return [
            metric.alias(_metric(at, part))
            for at, one in enumerate(self.measures)
            for part, metric in enumerate(one.metrics)
        ]

    def tally(self, metrics: dict[str, Any]) -> Tally:
        """The tally in the values of `metrics`."""
        failed = {rule.id: int(metrics[f"failed{at}"]) for at, rule in enumerate(self.rules)}
        return Tally(
            rows=int(metrics["rows"]),
            dropped=int(metrics["dropped"]),
            quarantined=int(metrics["quarantined"]),
            failed={rule: count for rule, count in failed.items() if count},
            sample=metrics.get("sample"),
            measured={
                one.rule.id: tuple(metrics[_metric(at, part)] for part in range(len(one.metrics)))
                for at, one in enumerate(self.measures)
            },
        )

    def split(self, judged: pa.Table, measured: Mapping[str, Any]) -> tuple[pa.Table, pa.Table, Tally]:
        """Judged rows in memory: those the table takes, those for the quarantine (judged), and the tally.

        Args:
            judged: the rows.
            measured: the values of `measurements`.
        """
        verdict = judged[VERDICT]
        counts = {row["values"]: row["counts"] for row in pc.value_counts(verdict).to_pylist()}
        failing = judged.filter(pc.equal(verdict, FAIL))
        metrics: dict[str, Any] = {
            **measured,
            "rows": len(judged),
            "dropped": counts.get(DROP, 0),
            "quarantined": counts.get(QUARANTINE, 0),
            "sample": failing[ROW][0].as_py() if len(failing) else None,
        }
        for at in range(len(self.rules)):
            bit = pa.scalar(1 << at % _WORD, pa.int64())
            hits = pc.not_equal(pc.bit_wise_and(judged[self._words[at // _WORD]], bit), 0)
            metrics[f"failed{at}"] = pc.sum(hits, min_count=0).as_py()
        held = judged.filter(pc.equal(verdict, QUARANTINE))
        passed = judged if set(counts) <= {0} else judged.filter(pc.equal(verdict, 0))
        return passed.drop_columns(self._own), held, self.tally(metrics)

    def ids(self, judged: pa.Table) -> list[list[str]]:
        """For each judged row in memory, the rules that it fails."""
        words = [judged[word].to_pylist() for word in self._words]
        return [self._ids(row) for row in zip(*words, strict=True)]

    def ids_of(self, held: Mapping[str, Any]) -> list[str]:
        """The rules that a row fails, as `held` has it."""
        return self._ids([int(held[word]) for word in self._words])

    def _ids(self, words: Sequence[int]) -> list[str]:
        return [rule.id for at, rule in enumerate(self.rules) if words[at // _WORD] >> at % _WORD & 1]

    def findings(self, tally: Tally, before: Shares, clock: str) -> Findings:
        """What the rules about many rows at once say of a batch.

        Args:
            tally: the batch's.
            before: the shares after the batch before it.
            clock: the batch's time.
        """
        taken = tally.rows - tally.dropped - tally.quarantined
        return measure.judge(self.measures, tally.measured, before, datetime.fromisoformat(clock), taken)

    def enforce(self, tally: Tally, findings: Findings, batch: int) -> None:
        """Refuse a batch that fails a rule whose action is `fail`.

        Raises:
            FlowError: it names the rules, their counts, and shows a row without its values.
        """
        broken = [one.rule for one in self.measures if one.rule.action == "fail"]
        broken = [rule for rule in broken if rule.id in findings.missed]
        said = [f"{rule.id} ({findings.missed[rule.id]}, {rule.where})" for rule in broken]
        like = ""
        if tally.sample is not None:
            failed = [rule for rule in self.rules if rule.action == "fail" and rule.id in tally.failed]
            said += [f"{rule.id} ({tally.failed[rule.id]} rows, {rule.where})" for rule in failed]
            broken, like = broken + failed, _like(json.loads(tally.sample), failed)
        if broken:
            raise FlowError(
                f"{self._table}: batch {batch} fails {', '.join(said)}; {like}nothing of the batch is in "
                "the table",
                code="EXPECTATION_FAILED",
                table=self._table,
                file=broken[0].where.file,
                hint="mend the rows' source, the definition or the suite, then run again",
            )

    def _strongest(self) -> Column:
        """The verdict, from the words."""
        verdict = F.lit(0)
        for code in (DROP, QUARANTINE, FAIL):
            held = self._any([ACTIONS.index(rule.action) == code for rule in self.rules])
            verdict = verdict if held is None else F.when(held, F.lit(code)).otherwise(verdict)
        return verdict

    def _any(self, wanted: Sequence[bool]) -> Column | None:
        """Whether a row fails one of the wanted rules; None where none is wanted."""
        masks = dict.fromkeys(self._words, 0)
        for at, want in enumerate(wanted):
            masks[self._words[at // _WORD]] |= want << at % _WORD
        hits = [F.col(word).bitwiseAND(F.lit(mask)) != 0 for word, mask in masks.items() if mask]
        return reduce(or_, hits) if hits else None

    def _fails(self, at: int) -> Column:
        return F.col(self._words[at // _WORD]).bitwiseAND(F.lit(1 << at % _WORD)) != 0

    def _has(self, code: int) -> bool:
        return any(ACTIONS.index(rule.action) == code for rule in self.rules)


def _metric(measure: int, part: int) -> str:
    return f"measure{measure}_{part}"


def _bits(predicates: Sequence[Column]) -> Column:
    """A BIGINT whose bit n says whether predicate n holds."""
    zero = F.lit(0).cast("bigint")
    one = [F.lit(1 << at).cast("bigint") for at in range(len(predicates))]
    bits = [F.when(holds, bit).otherwise(zero) for holds, bit in zip(predicates, one, strict=True)]
    return reduce(lambda a, b: a.bitwiseOR(b), bits)


def _like(row: dict[str, Any], rules: Sequence[Rule]) -> str:
    """What a row looks like in the columns that rules name, each letter an x and each digit a 9."""
    names = dict.fromkeys(name for rule in rules for name in rule.columns)
    said = ", ".join(f"{name}: {_mask(row.get(name))}" for name in names)
    return f"one looks like {said}; " if said else ""


def _mask(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    digits = re.sub(r"\d", "9", text)
    return re.sub(r"[^\W\d_]", "x", digits) if isinstance(value, str) else digits
