"""`FROM STREAM stream AS alias WATERMARK …`: Spark takes a watermark before the alias alone."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.project.sql.reader import Reader, Rewriting


class Clauses(Reader):
    """Those of a statement that stand behind an alias."""

    def read(self) -> Iterator[Rewriting]:
        """Each of them, put before its alias.

        Raises:
            Refused: it is unfinished.
        """
        for at in range(len(self._tokens)):
            if self._word(at) == "STREAM":
                name = self._behind(at + 1) if self._opens(at + 1) else self._behind_name(at + 1)
                alias = name + 2 if self._word(name) == "AS" else name + 1
                if self._word(name) != "WATERMARK" == self._word(alias):
                    yield self._moved(name, alias)

    def _moved(self, name: int, alias: int) -> Rewriting:
        """The clause behind an alias, put behind the name."""
        here = self._behind_name(alias + 1)
        behind = self._behind_interval(here + 3)
        if self._words(here, 3) != ("DELAY", "OF", "INTERVAL") or behind == here + 3:
            hint = "write WATERMARK column DELAY OF INTERVAL 10 SECONDS"
            raise self._refused(alias, "a watermark is unfinished", hint)
        said = self._tokens[here - 1 : behind]
        clause = f" WATERMARK {' '.join(self._text[one.start : one.end + 1] for one in said)}"
        span = (self._tokens[alias].start, said[-1].end + 1)
        return Rewriting([span], [(self._tokens[name - 1].end + 1, clause)])
