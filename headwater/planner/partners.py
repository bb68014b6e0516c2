"""Which rows of streams that are joined can be partners, and how long a row waits for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwater.errors import ProjectError, Where


@dataclass(frozen=True)
class Within:
    """How far a time may lie from another, in microseconds.

    Attributes:
        ours, theirs: the columns.
        least, most: what ours is later than theirs by; None: no bound.
    """

    ours: str
    theirs: str
    least: int | None
    most: int | None


@dataclass(frozen=True)
class Partners:
    """Which rows of a stream can be joined with rows of another.

    Attributes:
        of: the stream that has them.
        among: the other stream.
        equal: (column of `of`, column of `among`) that are equal; none, and no `within`: all rows can.
        within: times of `of` that lie near times of `among`.
    """

    of: str
    among: str
    equal: tuple[tuple[str, str], ...]
    within: tuple[Within, ...]

    @property
    def are_anywhere(self) -> bool:
        """Whether keys alone tell them, and no bound of time says in which files they lie."""
        return bool(self.equal) and all(None in (each.least, each.most) for each in self.within)


Joins = Mapping[str, tuple[Partners, ...]]  # {stream with new rows → how those of each other one are found}


@dataclass(frozen=True)
class Found:
    """How a query over streams is computed of new rows.

    Attributes:
        joins: what new rows of each stream are joined with.
        alone: {stream whose rows are given without a partner, too → how many microseconds later one may be}.
    """

    joins: Joins
    alone: Mapping[str, int]


def waits(
    joins: Joins, alone: Sequence[str] | None, times: Mapping[str, str], where: Where
) -> dict[str, int]:
    """How long rows wait for a partner; see `Found.alone`.

    Args:
        joins: how partners are found.
        alone: the streams whose rows are given without one, too; None: no join gives such.
        times: {stream → its event time}.
        where: the definition.

    Raises:
        ProjectError: none waits, or for ever.
    """
    if alone is None:
        raise ProjectError(
            f"{where} has emit = 'final', and none of its rows waits for a partner",
            code="WINDOW_MISSING",
            where=where,
            hint="leave it out: pairs are appended as they come; rows without a partner are given by LEFT, "
            "RIGHT, FULL or ANTI JOIN of the streams",
        )
    found = {}
    for stream in alone:
        (partners,) = joins[stream]
        mine, theirs = times[stream], times[partners.of]
        bounds = [each.most for each in partners.within if (each.ours, each.theirs) == (theirs, mine)]
        latest = min((most for most in bounds if most is not None), default=None)
        if latest is None:
            raise ProjectError(
                f"{where}: a row of {stream} would wait for ever for one of {partners.of}",
                code="JOIN_UNBOUNDED",
                where=where,
                hint=f"say until when one may come: ON … AND {theirs} <= {mine} + INTERVAL 10 MINUTES; or "
                "leave emit = 'final' out, then a row is there at once, and corrected when one comes",
            )
        found[stream] = max(latest, 0)
    return found


def lines(joins: Joins, alone: Mapping[str, int]) -> Iterator[str]:
    """What is looked for where, and what waits for how long, for people."""
    for stream, partners in joins.items():
        for each in partners:
            by = [ours if ours == theirs else f"{ours} = {theirs}" for ours, theirs in each.equal]
            by += [_apart(within) for within in each.within]
            how = f"by {', '.join(by)}" if by else "all of them"
            how += ", in the files that an index of keys names" if each.are_anywhere else ""
            of = "" if each.among == stream else f", of {each.among}"
            yield f"new rows of {stream} read rows of {each.of}{of}: {how}"
    for stream, wait in alone.items():
        yield f"rows of {stream} without a partner are appended {wait / 1e6:.12g} s and the delay later"


def _apart(within: Within) -> str:
    def seconds(by: int | None) -> str:
        return "…" if by is None else f"{round(by / 1e6, 3) + 0.0:+.12g} s"

    return f"{within.ours} from {within.theirs} {seconds(within.least)} to {seconds(within.most)}"
