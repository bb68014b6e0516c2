"""Exactly once: how a batch becomes part of its tables, whatever is killed when.

1. **Pin** the intent in a small file, atomically: what is read, at which versions, by which clock, and
   the flow's next sequence number.
2. **Build**: read what was pinned, run the function, write the rows as files that no reader sees. With
   rows for more than one target, the intent then lists all files: they are staged.
3. **Commit** each target, the table itself last: one Delta commit each, which carries (flow, generation,
   sequence, consumed).
4. **Seal** the intent, and wake the flows below.

After a restart the intent says what to do. Sealed: nothing. Not sealed, and staged: the staged files are
committed to the targets that lack them. Not staged: if the table has the batch it is done, else it is
built again from what was pinned. So a batch is in every target once, and is never split two ways.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from headwater.common.report import Account, Stopwatch
from headwater.runtime import failpoints
from headwater.storage.identity import Identity, Shares
from headwater.storage.intent import Intent, IntentFile
from headwater.storage.open_table import CHECKPOINT_EVERY
from headwater.storage.target import Target

Merge = Callable[[Target, pa.Table, Identity], int]
Part: TypeAlias = list[str] | pa.Table


@dataclass(frozen=True)
class Built:
    """A batch, built but not committed.

    Attributes:
        parts: per target, in the order of their commits (the table last), the files written, or the rows
            that are merged into it.
        appended: the targets to which files are added as they are, though their rows are otherwise merged.
        newest: what the build found to be `Identity.newest`, where that was not known before.
        shares: what the build found to be `Identity.shares`.
        reached: what the build found to be `Identity.reached`.
        rows: what the build found to be `Identity.rows`, where that was not known before.
        account: what it made of the batch's rows.
    """

    parts: Mapping[str, Part]
    appended: Sequence[str] = ()
    newest: int | None = None
    shares: Shares = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    account: Account = field(default_factory=Account)


@dataclass(frozen=True)
class Committed:
    """A batch that is in all of its tables.

    Attributes:
        version: the table's that has it.
        account: what the build made of its rows; nothing where a process that was killed had built it.
        phases: {step → its seconds}: `pin`, `build`, `commit` and `seal`, those that were left to do.
    """

    version: int
    account: Account
    phases: dict[str, float]


class Committer:
    """The commit of one flow.

    Args:
        table: the flow's table.
        intents: where the flow pins its intents.
        merges: {target → how rows that are merged into it become a commit; its version}.
        open_target: opens another target of the flow by name, making its table where there is none.
    """

    def __init__(
        self,
        table: Target,
        intents: IntentFile,
        *,
        merges: Mapping[str, Merge] | None = None,
        open_target: Callable[[str], Target] | None = None,
    ) -> None:
        self.table = table
        self._intents = intents
        self._merges = merges or {}
        self._open_target = open_target
        self._targets = {table.place.name: table}

    def unsealed(self) -> Intent | None:
        """The batch that a killed process left behind; None when all is done.

        An intent that is not of the table's last batch, nor of its next, is of a table that was removed.
        """
        intent = self._intents.left(self.table)
        if intent is None or intent.sealed:
            return None
        last = self.table.last(intent.flow)
        return intent if last <= intent.sequence <= last + 1 else None

    def left(self, fingerprint: str) -> Intent | None:
        """The batch that a killed process left behind, and that is to be carried out.

        One that another definition has pinned, and of which nothing is staged, is given up: nothing of it is
        done, and what this definition reads is not in it. The next batch has its rows.

        Args:
            fingerprint: of the definition.
        """
        left = self.unsealed()
        if left is None or left.staged is not None or left.fingerprint == fingerprint:
            return left
        self._intents.seal(left)
        return None

    def finish(self) -> None:
        """Commit what a killed process had staged; what it had not is given up: who wants it asks anew.

        Raises:
            CommitError: something else wrote to a target.
        """
        left = self.unsealed()
        if left is not None and left.staged is not None:
            self.carry_out(left, _nothing)
        elif left is not None:
            self._intents.seal(left)

    def carry_out(self, intent: Intent, build: Callable[[Intent], Built]) -> Committed:
        """Do the batch, or what is left of it.

        Raises:
            CommitError: something else wrote to a target.
        """
        flow = intent.flow
        account, watch = Account(), Stopwatch()
        # 1. Pin
        if intent.staged is None:
            intent = self._intents.write(replace(intent, token=intent.token or uuid.uuid4().hex[:8]))
        failpoints.reach("pinned", flow)
        watch.lap("pin")
        if not self.table.done(intent):
            # 2. Build
            if intent.staged is None:
                built = build(intent)
                intent = replace(
                    intent,
                    newest=built.newest or intent.newest,
                    shares=built.shares,
                    reached=built.reached,
                    rows=intent.rows or built.rows,
                    keys=built.account.keys_touched,
                    appended=list(built.appended),
                )
                parts, account = dict(built.parts), built.account
                failpoints.reach("built", flow)
                if len(parts) > 1:
                    parts = {name: self._written(name, part, intent) for name, part in parts.items()}
                    intent = self._intents.write(replace(intent, staged=parts))
                    failpoints.reach("staged", flow)
                watch.lap("build")
            else:
                parts = dict(intent.staged)
            # 3. Commit
            for name, part in parts.items():
                self._commit(name, part, intent, appended=name in intent.appended)
                failpoints.reach("committing", flow)
            failpoints.reach("committed", flow)
            watch.lap("commit")
        # 4. Seal
        self._intents.seal(intent)
        failpoints.reach("sealed", flow)
        watch.lap("seal")
        return Committed(self.table.version, account, watch.phases)

    def _written(self, name: str, part: Part, intent: Intent) -> list[str]:
        """The files of a target's part; of one that is merged, they are its rows."""
        return part if isinstance(part, list) else self.target(name).write(part, intent.batch)

    def _commit(self, name: str, part: Part, identity: Identity, *, appended: bool) -> None:
        target = self.target(name)
        if target.done(identity):
            return
        if name not in self._merges or appended or part == []:  # []: no rows
            assert isinstance(part, list)
            target.append(part, identity)
        elif isinstance(part, list):
            self._merges[name](target, target.read(part), identity)
            target.forget(part)
        else:
            self._merges[name](target, part, identity)

    def checkpoint(self, every: int = CHECKPOINT_EVERY) -> None:
        """Write the log checkpoints that are due; see `Target.checkpoint`."""
        for target in self.targets():
            target.checkpoint(every)

    def targets(self) -> list[Target]:
        """The targets that are open."""
        return list(self._targets.values())

    def target(self, name: str) -> Target:
        """One of the flow's targets, opened on first use."""
        if name not in self._targets:
            assert self._open_target is not None
            self._targets[name] = self._open_target(name)
        return self._targets[name]


def _nothing(_: Intent) -> Built:
    raise AssertionError("what is staged is not built again")
