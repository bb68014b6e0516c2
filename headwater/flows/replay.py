"""Quarantined records on their way back into the table, once, through the same code as any other.

A replay reads the records that are open, decodes them, runs the definition and the gate as they are now,
and commits those that pass to the table, and what became of each to the ledger
`quarantine.<layer>_<name>__resolved`: two commits that a kill can't part (see `storage.commit`). What
still fails stays open.

A record is put back whole or not at all: where one of the rows that it becomes is held back, or another
is in the table already, it stays open.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors import decode
from headwater.connectors.decode import SOURCE
from headwater.errors import CommitError, HeadwaterError
from headwater.flows import bisect
from headwater.flows.answers import Answers
from headwater.flows.applied import Applied
from headwater.flows.context import Context
from headwater.flows.rows import FewRows
from headwater.flows.work import Work
from headwater.quality.measure import Findings
from headwater.quality.quarantine import RESOLVED, Quarantine, by_rule
from headwater.storage import log, stored
from headwater.storage.commit import Built, Committer
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.mailbox import Request
from headwater.storage.names import lookup_name, quarantine_name, replay_name, resolved_name
from headwater.storage.places import KEYS, PLACE, place_of, within, without
from headwater.storage.target import Target


@dataclass
class Resolution:
    """What a request did to the open records of a quarantine.

    Attributes:
        replayed: records that are in the table now.
        rows: the rows that they became.
        dropped: records that the definition, or a rule that drops, leaves out now.
        discarded: records that a person gave up.
        failing: {rule → records that still fail it and stay open}.
        beside: records that stay open because other rows of theirs are in the table already.
    """

    replayed: int = 0
    rows: int = 0
    dropped: int = 0
    discarded: int = 0
    failing: dict[str, int] = field(default_factory=dict)
    beside: int = 0

    def __add__(self, other: Resolution) -> Resolution:
        counts = ("replayed", "rows", "dropped", "discarded", "beside")
        failing = dict(Counter(self.failing) + Counter(other.failing))
        return Resolution(
            **{name: getattr(self, name) + getattr(other, name) for name in counts}, failing=failing
        )


_NOWHERE = pa.schema(list(PLACE.items())).empty_table()


class Replay:
    """Resolves the open records of one table's quarantine.

    Args:
        context: the run.
        applied: the table's definition.
        table: the table, open for writing: shared with its flow, which takes turns with this one.
        topics: of which records it takes those; None: there are no others.
    """

    def __init__(
        self, context: Context, applied: Applied, table: Target, topics: Sequence[str] | None = None
    ) -> None:
        self.name = replay_name(table.place.name)
        self._context = context
        self._applied = applied
        self._table = table
        self._searching = bisect.WITHIN  # seconds that are left for records that fail
        self._topics = None if topics is None else pa.array(topics, pa.string())
        self._committer = Committer(
            table, IntentFile(context.lake.flow_folder(self.name, table.place.name)), open_target=self._open
        )

    def recover(self) -> None:
        """Commit what a killed replay had staged; what it had not is still open.

        Raises:
            CommitError: the ledger knows of a replay that the table lacks: an older copy was put back.
        """
        mine, left = self._table.place, self._committer.unsealed()
        place = self._context.lake.places().get(resolved_name(mine.name))
        told = log.flows(place.path).get(self.name) if place and log.exists(place.path) else None
        done = max(self._table.last(self.name), left.sequence if left else -1)
        if place and told and told["generation"] >= mine.generation and told["sequence"] > done:
            raise CommitError(
                f"{mine.name}: {place.name} is of an earlier life of it",
                code="TABLE_OF_EARLIER_LIFE",
                table=place.name,
                hint=f"put both back from one copy, or make both anew: headwater rebuild {mine.name}",
            )
        self._committer.finish()

    def __call__(self, request: Request) -> Resolution:
        """Do what is asked for, in batches.

        Raises:
            FlowError: a record fails a rule whose action is `fail`; the batches before it are committed.
        """
        self.recover()
        self._searching = bisect.WITHIN
        done = Resolution()
        quarantine = Quarantine(self._context.lake, self._table.place.name)
        beside = self._in_table(quarantine, request) if request.action == "replay" else _NOWHERE
        for rows in quarantine.records(request.rule):
            if self._topics is not None:
                rows = rows.filter(pc.is_in(rows["topic"], self._topics))
            done.beside += len(within(rows, beside))
            self._batch(without(rows, beside), request, done)
            self._context.heads.announce(self._table.place.name)
        if done.replayed or done.dropped or done.discarded:
            self._committer.target(resolved_name(self._table.place.name)).checkpoint()
        return done

    def _in_table(self, quarantine: Quarantine, request: Request) -> pa.Table:
        """Where the open records stand that the table has rows of already."""
        places, files = quarantine.places(request.rule).select(KEYS), self._table.files()
        if not len(places) or not files:
            return _NOWHERE
        sources = self._applied.work({}, self._table).spark.read.parquet(*files).select(f"{SOURCE}.*")
        return decode.at(sources, places).distinct().toArrow()

    def _batch(self, rows: pa.Table, request: Request, done: Resolution) -> None:
        intent = Intent(
            flow=self.name,
            generation=self._table.place.generation,
            sequence=self._table.last(self.name) + 1,
            consumed={},
            clock=self._context.clock(),
            fingerprint=self._applied.analysed.fingerprint,
            references=self._applied.references.pinnable() if request.action == "replay" else {},
            prefix="replay-",
            rows=len(rows),
        )
        if request.action == "discard":
            answers, made = None, _NOWHERE
            ledger = self._ledger(rows, Counter(), intent, "discarded", request.why)
            done.discarded += len(rows)
        else:
            answers = self._applied.answers(self._table, intent.clock)
            ledger, made = self._replayed(rows, intent, answers, done)
        if not len(ledger):
            return

        def build(pinned: Intent) -> Built:
            resolved = self._committer.target(resolved_name(self._table.place.name))
            told = answers.parts(self._table.place, pinned.batch) if answers is not None else {}
            files = {resolved.place.name: resolved.write(ledger, pinned.batch)}
            return Built({**files, **told, self._table.place.name: self._table.write(made, pinned.batch)})

        self._committer.carry_out(intent, build)
        if answers is not None:
            answers.hold()

    def _replayed(
        self, rows: pa.Table, intent: Intent, answers: Answers | None, done: Resolution
    ) -> tuple[pa.Table, pa.Table]:
        """What becomes of a batch: its ledger, and its rows for the table."""
        work = self._applied.work(intent.references, self._table, answers)
        raw = rows.select(work.columns.fieldNames()).cast(stored.schema(work.columns))
        taken, passed = self._taken(work, raw)
        held = taken.held(intent.clock)
        if work.gate is not None and work.gate.keyed:
            # A row of a record that stays where it is must not have counted as the first with its key.
            stay = held.slice(0, 0)
            keyed = {each.rule.id for each in work.gate.keyed}
            others = [each.id for each in work.gate.rules if each.action == "warn" or each.id in keyed]
            while len(apart := _apart(passed, held, others)):
                stay, raw = pa.concat_tables([stay, within(held, apart)]), without(raw, apart)
                taken, passed = self._taken(work, raw)
                held = taken.held(intent.clock)
            held = pa.concat_tables([stay, held])
        whole = without(_sources(passed).append_column("at", pa.array(range(len(passed)), pa.int64())), held)
        passed = passed.take(whole["at"].combine_chunks())
        if work.gate is not None:
            work.gate.enforce(taken.counts().tally, Findings(), intent.sequence)
        became = Counter(map(place_of, whole.select(KEYS).to_pylist()))
        ledger = self._ledger(without(rows, held), became, intent, "replayed", None)
        replayed = int(pc.sum(pc.equal(ledger["outcome"], "replayed"), min_count=0).as_py())
        done.replayed += replayed
        done.rows += len(passed)
        done.dropped += len(ledger) - replayed
        still = Counter(done.failing)
        still.update(by_rule(held))
        done.failing = dict(still)
        return ledger, passed

    def _taken(self, work: Work, raw: pa.Table) -> tuple[FewRows, pa.Table]:
        """Records as the definition and the gate take them, and the rows that pass."""
        try:
            taken = FewRows(work, raw)
            return taken, taken.passed()
        except HeadwaterError:
            raise
        except Exception as e:
            began = time.monotonic()
            failing = bisect.broken(work, [raw], e, self._context.stop, most=None, within=self._searching)
            self._searching = max(0.0, self._searching - (time.monotonic() - began))
            taken = FewRows(work, raw, failing)
            return taken, taken.passed()

    def _ledger(
        self,
        rows: pa.Table,
        became: Counter[tuple[Any, ...]],
        intent: Intent,
        outcome: str,
        why: str | None,
    ) -> pa.Table:
        """What to note of resolved records; columns: `RESOLVED`."""
        at = datetime.fromisoformat(intent.clock)
        lines = [
            {
                **{name: row[name] for name in (*KEYS, "rules", "quarantined_at")},
                "outcome": "dropped" if outcome == "replayed" and not became[place_of(row)] else outcome,
                "rows": became[place_of(row)],
                "why": why,
                "resolved_at": at,
                "generation": intent.generation,
                "fingerprint": intent.fingerprint,
            }
            for row in rows.select([*KEYS, "rules", "quarantined_at"]).to_pylist()
        ]
        return pa.Table.from_pylist(lines, RESOLVED)

    def _open(self, name: str) -> Target:
        if name == lookup_name(self._table.place.name):
            return self._applied.told(self._table.place)
        comment = f"What became of the records in {quarantine_name(self._table.place.name)}"
        return self._context.open_beside(self._table.place.name, name, RESOLVED, comment)


def _apart(passed: pa.Table, held: pa.Table, others: Sequence[str]) -> pa.Table:
    """Records some of whose rows pass and some are held, which so stay; where only rules over keys hold
    these, the first of them alone: the others may be held because of its rows.

    Args:
        passed, held: the rows.
        others: the rules over keys, and those that hold nothing, by their ids.
    """
    apart, rules = within(_sources(passed), held), held["rules"].combine_chunks()
    by_itself = pc.invert(pc.is_in(pc.list_flatten(rules), pa.array(others, pa.string())))
    alone = within(apart, held.take(pc.list_parent_indices(rules).filter(by_itself)))
    return alone if len(alone) else apart.sort_by([(name, "ascending") for name in KEYS])[:1]


def _sources(rows: pa.Table) -> pa.Table:
    """Where the records stand that rows were made of; columns: those of `PLACE`."""
    return pa.Table.from_pylist(rows[SOURCE].to_pylist(), pa.schema(list(PLACE.items())))
