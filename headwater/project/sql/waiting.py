"""`TBLPROPERTIES ('headwater.wait_for' = '10 minutes')`: how long a row of a final outer join waits.

It says the same as a condition of the join: by how much later than a row, in event time, its partner may be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import TokenType

from headwater.project.sql.reader import Reader, Rewriting

WAIT = "headwater.wait_for"
_FORM = (
    "write FROM STREAM a WATERMARK t DELAY OF INTERVAL 10 SECONDS LEFT JOIN STREAM b WATERMARK u DELAY OF "
    "INTERVAL 10 SECONDS ON a.key = b.key"
)
_LASTS = re.compile(
    r"(\s*\d+(\.\d+)?\s+(microsecond|millisecond|second|minute|hour|day|week|month|year)s?)+", re.IGNORECASE
)
_NO_ALIAS = {"WATERMARK", "ON", "USING", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "JOIN", "ANTI", "SEMI"}


@dataclass(frozen=True)
class _Stream:
    """A stream: the place of its word, what the query calls it, its event time, and the place behind that."""

    at: int
    alias: str
    time: str
    behind: int


class Joins(Reader):
    """That of a statement."""

    def read(self) -> Iterator[Rewriting]:
        """It, where the statement has the property.

        Raises:
            Refused: it joins no two streams that tell the time by an outer join with ON.
        """
        names = [at for at, token in enumerate(self._tokens) if _is_wait(token.token_type, token.text)]
        if not names:
            return
        (at, *_), streams = names, [each for each in range(len(self._tokens)) if self._word(each) == "STREAM"]
        value = at + 1 + (at + 1 < len(self._tokens) and self._tokens[at + 1].token_type == TokenType.EQ)
        if len(streams) != 2 or value >= len(self._tokens):
            raise self._refused(at, f"{WAIT} is of two streams that are joined", _FORM)
        one, other = map(self._stream, streams)
        words = [self._word(each) for each in range(one.behind, other.at)]
        if not words or words[0] not in ("LEFT", "RIGHT", "FULL") or self._word(other.behind) != "ON":
            raise self._refused(other.at, f"{WAIT} is of an outer join of two streams with ON", _FORM)
        if not (one.time and other.time):
            raise self._refused(other.at, f"{WAIT} is of streams that tell the time", _FORM)
        wait = self._tokens[value].text
        if not _LASTS.fullmatch(wait.strip()):
            raise self._refused(value, f"{WAIT} = '{wait}' is no span of time", "write '10 minutes'")
        later = [(other, one)] * (words[0] != "RIGHT") + [(one, other)] * (words[0] != "LEFT")
        within = " AND ".join(
            f"`{partner.alias}`.`{partner.time}` <= `{row.alias}`.`{row.time}` + INTERVAL '{wait}'"
            for partner, row in later
        )
        begins = self._tokens[other.behind].end + 1
        ends = self._tokens[self._condition_end(other.behind + 1) - 1].end + 1
        yield Rewriting([], [(begins, f" ({within}) AND ("), (ends, ")")])

    def _stream(self, at: int) -> _Stream:
        """The stream whose word stands at a place."""
        name = at + 1 + self._opens(at + 1)
        alias, behind = self._tokens[self._behind_name(name) - 1].text, self._behind_name(name)
        behind = self._behind(at + 1) if self._opens(at + 1) else behind
        before, behind = self._time(behind)
        if self._word(behind) == "AS" or (self._word(behind) and self._word(behind) not in _NO_ALIAS):
            behind += self._word(behind) == "AS"
            alias, behind = self._tokens[behind].text, behind + 1
        after, behind = self._time(behind)
        return _Stream(at, alias, before or after, behind)

    def _time(self, at: int) -> tuple[str, int]:
        """The column of the watermark at a place, "": there is none; and the place behind it."""
        if self._word(at) != "WATERMARK":
            return "", at
        behind = self._behind_name(at + 1)
        return self._tokens[behind - 1].text, self._behind_interval(behind + 3)


def _is_wait(kind: TokenType, text: str) -> bool:
    return kind == TokenType.STRING and text == WAIT
