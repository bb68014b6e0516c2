"""`AUTO CDC … FROM STREAM s KEYS (…) … SEQUENCE BY …`, read from its tokens: Spark's parser lacks it.

Expressions are taken as they are written, up to the next clause; Spark reads them as the table is analysed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

from headwater.project.cdc.said import Cdc, Columns, checked
from headwater.project.sql.reader import Reader
from headwater.project.sql.said import Changes
from headwater.project.sql.statements import closing

# The clauses, by their first words.
_CLAUSES = {
    "KEYS": ("KEYS",),
    "IGNORE NULL UPDATES": ("IGNORE", "NULL", "UPDATES"),
    "APPLY AS DELETE WHEN": ("APPLY", "AS", "DELETE", "WHEN"),
    "APPLY AS TRUNCATE WHEN": ("APPLY", "AS", "TRUNCATE", "WHEN"),
    "SEQUENCE BY": ("SEQUENCE", "BY"),
    "COLUMNS": ("COLUMNS",),
    "STORED AS": ("STORED", "AS"),
    "TRACK HISTORY ON": ("TRACK", "HISTORY", "ON"),
}
_FORM = (
    "write AUTO CDC [ONCE] INTO table FROM STREAM source KEYS (column) [IGNORE NULL UPDATES] "
    "[APPLY AS DELETE WHEN condition] [APPLY AS TRUNCATE WHEN condition] SEQUENCE BY expression "
    "[COLUMNS * EXCEPT (column)] [STORED AS SCD TYPE 1 | SCD TYPE 2] [TRACK HISTORY ON * EXCEPT (column)]"
)
_OF_SNAPSHOTS = (
    "write AUTO CDC INTO table FROM SNAPSHOT source KEYS (column) SEQUENCE BY expression [COLUMNS * EXCEPT "
    "(column)] [STORED AS SCD TYPE 1 | SCD TYPE 2] [TRACK HISTORY ON * EXCEPT (column)]; SEQUENCE BY says "
    "which delivery a row is of"
)


class Clause(Reader):
    """An AUTO CDC that begins at a place of a statement.

    Args:
        text: the file's.
        tokens: the statement's.
        at: the place behind AUTO CDC, or APPLY CHANGES.
    """

    def __init__(self, text: str, tokens: Sequence[Token], at: int) -> None:
        super().__init__(text, tokens)
        self._begin = at

    def read(self) -> Changes:
        """What it says, up to the statement's end.

        Raises:
            Refused: it is unfinished, or says what can't be done.
        """
        at, into = self._begin, ""
        once = self._word(at) == "ONCE"
        at += once
        if self._word(at) == "INTO":
            if self._word(at + 1) == "ONCE" and self._word(at + 2) != "FROM":
                raise self._refused(
                    at + 1, "ONCE stands behind INTO", "write AUTO CDC ONCE INTO table FROM source"
                )
            into, at = self._name(at + 1), self._behind_name(at + 1)
        if self._word(at) != "FROM":
            text = "AUTO CDC is followed by no FROM"
            raise self._refused(at, text, "write FROM STREAM source first, then the other clauses")
        if self._words(at + 1, 2) == ("SNAPSHOT", "STREAM"):
            raise self._refused(at + 1, "FROM SNAPSHOT reads a table whole", "leave STREAM out")
        snapshots = self._word(at + 1) == "SNAPSHOT"
        at += 1 + (self._word(at + 1) in ("STREAM", "SNAPSHOT"))
        enclosed = self._opens(at)
        source, behind = self._name(at + enclosed), self._behind_name(at + enclosed) + enclosed
        if not source:
            raise self._refused(at, "a table is expected here", "write FROM STREAM source")
        line = self._line(self._begin - 1)
        cdc = self._cdc(self._clauses(behind), behind, line, snapshots=snapshots)
        return Changes(source, cdc, into, once)

    def _clauses(self, at: int) -> dict[str, tuple[int, int]]:
        """{clause → the places `[start, stop)` of what it says}."""
        found: dict[str, tuple[int, int]] = {}
        clause, begin = "", at
        here = at
        while here < len(self._tokens):
            behind = self._clause(here)
            if behind is None:
                if not clause:
                    raise self._refused(here, f"'{self._tokens[here].text}' is not expected here", _FORM)
                here = self._behind(here)
                continue
            if clause:
                found[clause] = (begin, here)
            clause, here = behind
            if clause in found:
                raise self._refused(here - 1, f"{clause} comes twice", "say it once")
            begin = here
        if clause:
            found[clause] = (begin, min(here, len(self._tokens)))
        return found

    def _clause(self, at: int) -> tuple[str, int] | None:
        """The clause that begins at a place, and the place behind its words."""
        for clause, words in _CLAUSES.items():
            if self._words(at, len(words)) == words:
                return clause, at + len(words)
        return None

    def _cdc(self, clauses: dict[str, tuple[int, int]], at: int, line: int, *, snapshots: bool) -> Cdc:
        for needed in ("KEYS", "SEQUENCE BY"):
            if needed not in clauses:
                form = _OF_SNAPSHOTS if snapshots else _FORM
                raise self._refused(at, f"AUTO CDC has no {needed}", form)
        columns, ignored, tracked = (
            self._columns(clauses.get(clause))
            for clause in ("COLUMNS", "IGNORE NULL UPDATES", "TRACK HISTORY ON")
        )
        try:
            return checked(
                Cdc(
                    keys=tuple(self._listed(*clauses["KEYS"])),
                    sequence_by=self._expression(*clauses["SEQUENCE BY"]),
                    scd=2 if self._is_history(clauses.get("STORED AS")) else 1,
                    deletes=self._condition(clauses, "APPLY AS DELETE WHEN"),
                    truncates=self._condition(clauses, "APPLY AS TRUNCATE WHEN"),
                    columns=columns or Columns(),
                    ignored=ignored,
                    tracked=tracked or Columns(),
                    snapshots=snapshots,
                    line=line,
                )
            )
        except TypeError as e:
            raise self._refused(at, str(e), "leave one of the two out") from None

    def _is_history(self, said: tuple[int, int] | None) -> bool:
        if said is None:
            return False
        words = [self._tokens[at].text.upper() for at in range(*said)]
        if words not in (["SCD", "TYPE", "1"], ["SCD", "TYPE", "2"]):
            hint = "write STORED AS SCD TYPE 1, or 2"
            raise self._refused(said[0], "STORED AS says neither SCD TYPE 1 nor SCD TYPE 2", hint)
        return words[-1] == "2"

    def _columns(self, said: tuple[int, int] | None) -> Columns | None:
        """`a, b`, `(a, b)`, `*`, `* EXCEPT (a, b)`; or nothing, as of IGNORE NULL UPDATES, or ON before."""
        if said is None:
            return None
        start, stop = said
        start += self._word(start) == "ON"
        if start >= stop:
            return Columns()
        if self._tokens[start].token_type != TokenType.STAR:
            return Columns(only=tuple(self._listed(start, stop)))
        if start + 1 == stop:
            return Columns()
        if self._word(start + 1) != "EXCEPT":
            raise self._refused(start + 1, f"'{self._tokens[start + 1].text}' is not expected here", _FORM)
        return Columns(but=tuple(self._listed(start + 2, stop)))

    def _listed(self, start: int, stop: int) -> list[str]:
        """The names `a, b` or `(a, b)`."""
        if self._opens(start) and closing(self._tokens, start) == stop - 1:
            start, stop = start + 1, stop - 1
        names = [self._tokens[at].text for at in range(start, stop, 2)]
        commas = {self._tokens[at].token_type for at in range(start + 1, stop, 2)}
        if not names or (stop - start) % 2 == 0 or commas - {TokenType.COMMA}:
            raise self._refused(start, "a list of columns is expected here", "write (a, b): names alone")
        return names

    def _condition(self, clauses: dict[str, tuple[int, int]], clause: str) -> str | None:
        return self._expression(*clauses[clause]) if clause in clauses else None

    def _expression(self, start: int, stop: int) -> str:
        if start >= stop:
            raise self._refused(start, "an expression is expected here", _FORM)
        return self._text[self._tokens[start].start : self._tokens[stop - 1].end + 1]
