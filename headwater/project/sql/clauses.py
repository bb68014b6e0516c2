"""What texts of Lakeflow have and Spark's parser has not, taken from a statement's tokens.

It reads as far as the head of a statement goes, and what follows STREAM; it knows nothing of queries. What
can't be done at all is refused here, with its line and what to write instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from sqlglot import Token, TokenType

from headwater.project.sql import as_of, delayed, kafka, nearest, waiting
from headwater.project.sql.reader import Reader, rewritten
from headwater.project.sql.said import Changes, Expected, Kafka, Refused, Taken
from headwater.project.sql.statements import closing, line_of, without

_STATEMENTS = (
    "write CREATE STREAMING TABLE or CREATE MATERIALIZED VIEW … AS SELECT …, CREATE FLOW … AS INSERT INTO …, "
    "or AUTO CDC INTO …, or CREATE TEMPORARY VIEW … AS SELECT …"
)
# Other statements of pipelines, by their first words: what to write instead.
_OTHERS = {
    "SET": "settings stand in conf/<environment>.yaml",
    "USE": "names of tables are <layer>.<name>",
    "CREATE VIEW": "write CREATE TEMPORARY VIEW, or CREATE MATERIALIZED VIEW for others to read it",
    "CREATE LIVE VIEW": "write CREATE TEMPORARY VIEW",
    "CREATE LIVE TABLE": "write CREATE MATERIALIZED VIEW",
    "CREATE STREAMING LIVE": "write CREATE STREAMING TABLE",
    "CREATE TEMPORARY LIVE": "write CREATE TEMPORARY VIEW",
    "CREATE TEMPORARY STREAMING": "write CREATE STREAMING TABLE",
}
# Clauses of a table's head: what to write instead.
_HEAD = {
    "PARTITIONED": "leave it out, or write TBLPROPERTIES ('headwater.cluster_by' = 'column')",
    "CLUSTER": "write TBLPROPERTIES ('headwater.cluster_by' = 'column')",
    "LOCATION": "leave it out: the lake says where tables lie",
    "OPTIONS": "leave it out",
    "SCHEDULE": "write TBLPROPERTIES ('headwater.trigger' = '1h')",
    "REFRESH": "write TBLPROPERTIES ('headwater.trigger' = '1h')",
    "TRIGGER": "write TBLPROPERTIES ('headwater.trigger' = '1h')",
    "FLOW": "write AS SELECT …, FLOW AUTO CDC FROM …, or a CREATE FLOW … AS INSERT INTO …",
    "WITH": "leave it out: who may read rows is the lake's to say",
    "DEFAULT": "leave it out",
}
_CHANGES = ("AUTO CDC", "APPLY CHANGES")  # the same
_KNOWN = ("CREATE STREAMING TABLE", "CREATE MATERIALIZED VIEW", "CREATE TEMPORARY VIEW", "CREATE FLOW")
_REFRESHED = ("CREATE STREAMING TABLE", "CREATE MATERIALIZED VIEW")
# Functions that read what is no table: what to write instead, or that alone.
_FUNCTIONS = {
    "READ_KAFKA": "write CREATE STREAMING TABLE … AS SELECT * FROM STREAM read_kafka(…) in bronze/, and do "
    "the rest in a table that reads it",
    "READ_FILES": "write name = hw.files('landing/*.json') in bronze/, and read that table",
    "CLOUD_FILES": "write name = hw.files('landing/*.json') in bronze/, and read that table",
}
_COLUMNS = "leave columns out: those of a table are its query's; CAST them there"
_KEYS = "write TBLPROPERTIES ('headwater.keys' = 'column')"
_ACTIONS = {("DROP", "ROW"): "drop", ("FAIL", "UPDATE"): "fail"}


def taken(text: str, tokens: Sequence[Token]) -> Taken:
    """A statement of a file without what Spark's parser does not take.

    Args:
        text: the file's.
        tokens: the statement's.

    Raises:
        Refused: what can't be done, or is unfinished.
    """
    return _Statement(text, tokens).taken()


class _Statement(Reader):
    """One statement; what is taken from it is noted as `[start, stop)` of the file."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        super().__init__(text, tokens)
        self._spans: list[tuple[int, int]] = []
        self._once = False  # whether it inserts ONCE

    def taken(self) -> Taken:
        kind, at = self._kind(self._head())
        expected: tuple[Expected, ...] = ()
        changes: Changes | None = None
        if kind == "CREATE FLOW":
            changes = self._flow(at)
        elif kind in _CHANGES:
            changes = self._fed(self._changes(at), kind)
        elif kind:
            changes = self._by_changes(at) if kind == "CREATE STREAMING TABLE" else None
            expected = self._of_table(at)
        read = self._called(kind, at) if kind else None
        first, last = self._tokens[0], self._tokens[-1]
        readers = (as_of.Clauses, delayed.Clauses, nearest.Joins, waiting.Joins)
        clauses = [each for reader in readers for each in reader(self._text, self._tokens).read()]
        self._spans += [span for each in clauses for span in each.spans]
        self._spans += self._comments()
        text = without(self._text, (first.start, last.end + 1), self._spans)
        text = rewritten(text, clauses)
        line = line_of(self._text, first.start)
        return Taken(text, line, expected, read, changes, self._once)

    def _comments(self) -> list[tuple[int, int]]:
        """Where comments stand: no rows follow from them, so a definition is the same without."""
        gaps = [(one.end + 1, other.start) for one, other in pairwise(self._tokens)]
        return [gap for gap in gaps if self._text[slice(*gap)].lstrip().startswith(("--", "/*"))]

    def _head(self) -> list[tuple[str, int]]:
        """The first keywords and their places, but for those that say how a definition meets an older one."""
        found: list[tuple[str, int]] = []
        at = 0
        while at < len(self._tokens) and len(found) < 3:
            if found and self._word(at) == "OR" and self._word(at + 1) in ("REFRESH", "REPLACE"):
                at += 2
            elif len(found) == 1 and self._word(at) == "PRIVATE":
                self._take(at, at)
                at += 1
            else:
                found.append((self._word(at), at))
                at += 1
        return found

    def _kind(self, head: list[tuple[str, int]]) -> tuple[str, int]:
        """What is declared, and the place behind these words; "": Spark's parser is to say what that is."""
        words = " ".join(keyword for keyword, _ in head).replace("TEMP ", "TEMPORARY ")
        if (first := " ".join(words.split()[:2])) in _CHANGES:
            return first, head[1][1] + 1
        for other, hint in _OTHERS.items():
            if f"{words} ".startswith(f"{other} "):
                raise self._refused(0, f"{other} is not supported", hint)
        for known in _KNOWN:
            if f"{words} ".startswith(f"{known} "):
                if known in _REFRESHED and self._word(1) == "OR":
                    self._take(1, 2)
                return known, head[known.count(" ")][1] + 1
        return "", 0

    def _flow(self, at: int) -> Changes | None:
        """What a flow says of changes; None: it inserts rows."""
        body = self._find("AS", at) + 1
        first = self._words(body, 3)
        if " ".join(first[:2]) in _CHANGES:
            behind = self._behind_name(at)
            commented = self._word(behind) == "COMMENT" and behind + 1 < len(self._tokens)
            return replace(
                self._fed(self._changes(body + 2), " ".join(first[:2])),
                name=self._name(at),
                comment=self._tokens[behind + 1].text if commented else "",
            )
        if first == ("INSERT", "INTO", "ONCE"):
            self._once = True
            self._take(body + 2, body + 2)
        return None

    def _by_changes(self, at: int) -> Changes | None:
        """What a table says of changes in its own statement, `… FLOW AUTO CDC FROM …`; None: nothing."""
        body = self._find("FLOW", at)
        if " ".join(self._words(body + 1, 2)) not in _CHANGES:
            return None
        changes = self._changes(body + 3)
        if changes.into:
            raise self._refused(body, f"a flow in a table's head feeds {changes.into}", "leave INTO out")
        self._take(body, len(self._tokens) - 1)
        self._tokens = self._tokens[:body]
        return changes

    def _changes(self, at: int) -> Changes:
        from headwater.project.sql.changes import Clause

        return Clause(self._text, self._tokens, at).read()

    def _fed(self, changes: Changes, words: str) -> Changes:
        """A flow's, which says what it feeds."""
        if not changes.into:
            raise self._refused(
                0, f"{words} does not say into which table", f"write {words} INTO table FROM …"
            )
        return changes

    def _of_table(self, at: int) -> tuple[Expected, ...]:
        """The expectations of a table's head."""
        end = self._find("AS", at)
        expected: list[Expected] = []
        here = self._behind_name(at + 3 if self._word(at) == "IF" else at)
        while here < end:
            token, keyword = self._tokens[here], self._word(here)
            if keyword in _HEAD:
                raise self._refused(here, f"{keyword} is not supported", _HEAD[keyword])
            if keyword == "USING":
                if self._word(here + 1) != "DELTA":
                    raise self._refused(here, "USING is not supported", "leave it out: tables are Delta's")
                self._take(here, here + 1)
            if token.token_type == TokenType.L_PAREN:
                close = closing(self._tokens, here)
                if self._word(here - 1) != "TBLPROPERTIES":
                    expected += self._columns(here, close)
                here = close
            here += 1
        return tuple(expected)

    def _columns(self, start: int, stop: int) -> list[Expected]:
        """What stands where columns would: expectations, and nothing else."""
        found, here = [], start + 1
        while here < stop:
            if self._word(here) != "CONSTRAINT" or self._word(here + 2) != "EXPECT":
                keyed = self._word(here) == "CONSTRAINT" or self._word(here + 1) == "KEY"
                what, hint = ("a constraint", _KEYS) if keyed else ("a list of columns", _COLUMNS)
                raise self._refused(here, f"{what} is not supported", hint)
            one, here = self._expected(here)
            found.append(one)
            if here < stop and self._tokens[here].token_type != TokenType.COMMA:
                raise self._refused(
                    here, f"'{self._tokens[here].text}' is not expected here", "write a comma"
                )
            here += 1
        self._take(start, min(stop, len(self._tokens) - 1))
        return found

    def _expected(self, at: int) -> tuple[Expected, int]:
        """The expectation that begins at a place, and the place behind it."""
        opens = at + 3
        close = closing(self._tokens, opens)
        if not self._opens(opens) or not opens + 1 < close < len(self._tokens):
            raise self._refused(at, "an expectation has no condition", "write EXPECT (condition)")
        condition = self._text[self._tokens[opens].end + 1 : self._tokens[close].start].strip()
        action, here = "warn", close + 1
        if self._word(here) == "ON":
            said = self._words(here + 2, 2)
            if self._word(here + 1) != "VIOLATION" or said not in _ACTIONS:
                raise self._refused(
                    here, "an expectation has another action", "write ON VIOLATION DROP ROW, or FAIL UPDATE"
                )
            action, here = _ACTIONS[said], here + 4
        line = self._line(at)
        return Expected(self._tokens[at + 1].text, condition, action, line), here  # type: ignore[arg-type]

    def _called(self, kind: str, at: int) -> Kafka | None:
        """The topic that a table is of; its query is taken, so that the head remains."""
        body = self._find("AS", at)
        for here in range(body, len(self._tokens)):
            if (function := self._word(here)) in _FUNCTIONS and self._opens(here + 1):
                break
        else:
            return None
        if function != "READ_KAFKA":
            raise self._refused(here, f"{function.lower()} is not supported", _FUNCTIONS[function])
        whole = ["AS", "SELECT", "*", "FROM", "STREAM", "READ_KAFKA"]
        said = [self._word(each) for each in range(body, here + 1)]
        close = closing(self._tokens, here + 1)
        if kind != "CREATE STREAMING TABLE" or said != whole or close != len(self._tokens) - 1:
            hint = _FUNCTIONS["READ_KAFKA"]
            raise self._refused(here, "what reads Kafka is a table of its records as they are", hint)
        self._take(body, close)
        return kafka.read(self._text, self._tokens[here : close + 1])

    def _take(self, first: int, last: int) -> None:
        self._spans.append((self._tokens[first].start, self._tokens[last].end + 1))


def other(line: int, kind: str) -> Refused:
    """The refusal of a statement that declares nothing here."""
    return Refused(
        f"a {kind} statement is not supported", "STATEMENT_NOT_SUPPORTED", line=line, hint=_STATEMENTS
    )
