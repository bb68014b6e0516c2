"""Streams that are joined: with which rows of the others a new row of one can be joined.

A query of inner joins, filters and projections, in which each stream stands once, gives of new rows what
these give with all rows of the other streams, and takes nothing back. So what it appends is found from the
new rows of one stream at a time: Spark's plan says which of the others' can be their *partners*, by columns
that have to be equal and by how far two times may lie apart. That may find too many, and none too few; the
query itself is applied to what is found.

An outer join of two streams takes nothing back either, where a row without a partner is given when no partner
can come any more. Then what the plan says has to be all that it asks: partners are told from it alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from headwater.errors import ProjectError, Where
from headwater.planner import marked, nodes, spans
from headwater.planner.nodes import Node, conditions
from headwater.planner.partners import Found, Partners, Within, waits
from headwater.planner.spans import Span
from headwater.runtime import catalyst

# `a BETWEEN b AND c` as comparisons; subqueries as the joins that they are.
_RULES = (
    "ReplaceExpressions",
    "RewriteWithExpression",
    "PullupCorrelatedPredicates",
    "RewritePredicateSubquery",
)
_ROW_BY_ROW = ("Project", "Filter", "SubqueryAlias", "View", "ResolvedHint", "Generate", "Expand")
_LEAVES = ("LocalRelation", "OneRowRelation", "Range")
_INNER = ("Inner", "Cross")
_OF_LEFT = ("LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin", "LeftSingle")
# Which sides' rows such a join of streams gives without a partner, too.
_KEPT = {
    "LeftOuter": ("left",),
    "RightOuter": ("right",),
    "FullOuter": ("left", "right"),
    "LeftAnti": ("left",),
}
# The types whose values are equal in DuckDB where they are in Spark.
_COMPARED = {
    *("string", "boolean", "byte", "short", "integer", "long", "decimal"),
    *("date", "timestamp", "timestamp_ntz", "binary"),
}
_TURNED = {
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}


_Column = tuple[str, str]  # a stream, and the name of one of its columns
_Bounds = dict[tuple[_Column, _Column], tuple[int | None, int | None]]  # as those of `Within`


def find(
    result: DataFrame,
    sources: Sequence[str],
    streams: Sequence[str],
    where: Where,
    times: Mapping[str, str] | None = None,
) -> Found:
    """How a query over streams is computed of new rows.

    Args:
        result: the query over inputs as `marked.frame` makes them.
        sources: their names.
        streams: those of them that are streams; the others are reference tables.
        where: the definition.
        times: {stream → its event time}, where rows without a partner wait for one; None: none may be given.

    Raises:
        ProjectError: of new rows it may take something back, or it looks across rows; or it is not known
            which rows are partners, or until when they may come.
    """
    plan = nodes.rewritten(result, _RULES)
    if catalyst.has(plan, "PLAN_EXPRESSION"):
        raise _refused(where, "a subquery")
    query = _Query(sources, streams, where, waits=times is not None)
    query.read(Node.of_plan(plan))
    found = {stream: query.partners(stream) for stream in streams}
    return Found(found, waits(found, query.alone, times, where) if times is not None else {})


class _Query:
    """What a query's plan says of its streams; see `find`.

    Attributes:
        alone: the streams whose rows an outer join gives without a partner, too; None: there is none.
    """

    def __init__(self, sources: Sequence[str], streams: Sequence[str], where: Where, *, waits: bool) -> None:
        self._sources, self._streams, self._where, self._waits = sources, streams, where, waits
        self.alone: list[str] | None = None
        self._columns: dict[int, _Column] = {}
        self._named: dict[int, list[Node]] = {}
        self._equal: set[tuple[_Column, _Column]] = set()
        self._bounds: _Bounds = {}

    def read(self, node: Node) -> list[str]:
        """The streams below a node, once what it says of them is known.

        Raises:
            ProjectError: see `find`.
        """
        if node.kind in _LEAVES:
            if node.kind != "LocalRelation":
                return []
            source, columns = marked.read(node, self._sources)
            if source not in self._streams:
                return []
            self._columns |= {column: (source, name) for column, name in columns.items()}
            return [source]
        if node.kind == "Join":
            return self._join(node)
        if node.kind not in _ROW_BY_ROW:
            below = [stream for child in node.children for stream in self.read(child)]
            if below:
                raise _refused(self._where, _WHAT.get(node.kind, node.kind))
            return []
        (child,) = node.children
        below = self.read(child)
        if node.kind == "Filter" and self.alone is None:
            self._note(node)
        self._named |= nodes.computed(node)
        return below

    def _join(self, node: Node) -> list[str]:
        left, right = map(self.read, node.children)
        said = node.fields["joinType"]
        kind = str(said.get("object") or said.get("product-class")).rpartition(".")[2].rstrip("$")
        twice = sorted({*left} & {*right})
        if twice:
            raise _refused(self._where, f"a join of {twice[0]} with itself")
        if kind in _INNER:
            if self.alone is None:
                self._note(node)
        elif left and right and self._waits and kind in _KEPT:
            self._outer(node, kind, left, right)
        elif left and right:
            raise _refused(self._where, f"this {kind} join of streams")
        elif (right and kind in _OF_LEFT) or (left and kind == "RightOuter") or kind == "FullOuter":
            raise ProjectError(
                f"{self._where}: this {kind} join would repeat rows of a table in every batch",
                code="JOIN_REPEATS_ROWS",
                where=self._where,
                hint="keep the rows of the streams: streams LEFT JOIN table",
            )
        return [*left, *right]

    def _outer(self, node: Node, kind: str, left: Sequence[str], right: Sequence[str]) -> None:
        """Keep what an outer join says, whose partners are then told from that alone.

        Raises:
            ProjectError: that would not be right.
        """
        if len(self._streams) > 2:
            raise _not_told(self._where, f"a third stream beside this {kind} join")
        for side in node.children:
            if other := _filtering(side):
                raise _not_told(self._where, f"{_WHAT.get(other, other)} below this {kind} join")
        self._equal, self._bounds = set(), {}
        for each in conditions(node):
            if not self._is_told(each):
                raise _not_told(self._where, f"{each.kind} in the condition of this {kind} join")
        self._note(node)
        self.alone = [*left] * ("left" in _KEPT[kind]) + [*right] * ("right" in _KEPT[kind])

    def _is_told(self, condition: Node) -> bool:
        """Whether what `_note` keeps of a condition is all that it says."""
        if condition.kind == "EqualTo":
            plain = [self._plain(side) for side in condition.children]
            kinds = {str(side.fields.get("dataType")).partition("(")[0] for side in condition.children}
            if all(plain) and len({each[0] for each in plain if each}) == 2 and kinds <= _COMPARED:
                return True
        if condition.kind not in (*_TURNED, "EqualTo"):
            return False
        one, other = (spans.of(side, self._named) for side in condition.children)
        if one is None or other is None:
            return False
        apart = one.plus(other, -1)
        of = {self._columns.get(column) for column in apart.columns}
        signs = sorted(apart.columns.values())
        return apart.least == apart.most and signs == [-1, 1] and len({each[0] for each in of if each}) == 2

    def _note(self, node: Node) -> None:
        """Keep what the condition of a join or a filter says of two streams."""
        for each in conditions(node):
            if each.kind == "EqualTo":
                one, other = (self._plain(side) for side in each.children)
                if one and other and one[0] != other[0]:
                    self._equal |= {(one, other), (other, one)}
                structs = (spans.parts(side, self._named) for side in each.children)
                for parts in zip(*structs, strict=False):
                    self._compared(each.kind, *parts)
            if each.kind in (*_TURNED, "EqualTo"):
                self._compared(each.kind, *(spans.of(side, self._named) for side in each.children))

    def _compared(self, kind: str, one: Span | None, other: Span | None) -> None:
        """Keep how far apart two streams' times are, of which what is computed is compared."""
        if one is None or other is None:
            return
        apart = one.plus(other, -1)
        signs = {sign: self._columns.get(column) for column, sign in apart.columns.items()}
        plus, minus = signs.get(1), signs.get(-1)
        if len(apart.columns) != 2 or not plus or not minus or plus[0] == minus[0]:
            return
        for pair, comparison, lowest, highest in (
            ((plus, minus), kind, -apart.most, -apart.least),
            ((minus, plus), _TURNED.get(kind, kind), apart.least, apart.most),
        ):
            least, most = self._bounds.get(pair, (None, None))
            lowest, highest = lowest + (comparison == "GreaterThan"), highest - (comparison == "LessThan")
            if comparison != "LessThan" and comparison != "LessThanOrEqual":
                least = lowest if least is None else max(least, lowest)
            if comparison != "GreaterThan" and comparison != "GreaterThanOrEqual":
                most = highest if most is None else min(most, highest)
            self._bounds[pair] = least, most

    def _plain(self, expression: Node) -> _Column | None:
        """The column of a stream that an expression is, as it is."""
        number = marked.number_of(expression)
        while number in self._named:
            number = marked.number_of(self._named[number][0]) if len(self._named[number]) == 1 else None
        return self._columns.get(number) if number is not None else None

    def partners(self, stream: str) -> tuple[Partners, ...]:
        """How partners of new rows of a stream are found: first where most is said of them."""
        known, found = [stream], list[Partners]()
        while left := [each for each in self._streams if each not in known]:
            best = max((self._of(each, among) for each in left for among in known), key=_tells)
            found.append(best)
            known.append(best.of)
        return tuple(found)

    def _of(self, of: str, among: str) -> Partners:
        pairs = (pair for pair in self._equal if (pair[0][0], pair[1][0]) == (of, among))
        equal = sorted((ours, theirs) for (_, ours), (_, theirs) in pairs)
        within = (
            Within(ours[1], theirs[1], least, most)
            for (ours, theirs), (least, most) in sorted(self._bounds.items())
            if (ours[0], theirs[0]) == (of, among)
        )
        return Partners(of, among, tuple(equal), tuple(within))


def _tells(partners: Partners) -> tuple[bool, bool]:
    """What says most of which rows are partners."""
    return bool(partners.equal), bool(partners.within)


def _filtering(node: Node) -> str:
    """The first node from one downward that may drop or repeat rows of a stream; "": there is none."""
    if node.kind not in (*_LEAVES, "Project", "SubqueryAlias", "View", "ResolvedHint"):
        return node.kind
    return next(filter(None, map(_filtering, node.children)), "")


def _not_told(where: Where, what: str) -> ProjectError:
    return ProjectError(
        f"{where} has emit = 'final', and {what} leaves open which rows are partners",
        code="PARTNERS_NOT_TOLD",
        where=where,
        hint="join two streams by equal columns (no DOUBLE or FLOAT) and bounds of their times alone, of "
        "days or shorter; filter in the tables that are read, compute of what is joined; or leave emit = "
        "'final' out",
    )


_WHAT = {**catalyst.ACROSS_ROWS, "Aggregate": "GROUP BY", "Union": "UNION"}


def _refused(where: Where, what: str) -> ProjectError:
    hint = "join them alone, and read that by another table; or write CREATE MATERIALIZED VIEW, "
    if what == "UNION":
        hint = "feed one table by several flows, and join that; or write CREATE MATERIALIZED VIEW, "
    hint += "@hw.materialized_view in Python, "
    return ProjectError(
        f"{where} joins streams, and {what} could have it take back or repeat rows",
        code="JOIN_NOT_APPENDED",
        where=where,
        hint=f"{hint}without STREAM, whose rows are corrected",
    )
