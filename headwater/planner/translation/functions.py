"""Functions of numbers, structs and whatever a row has. Each gets its node, and its arguments translated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.planner.nodes import Node
from headwater.planner.translation.kinds import (
    FLOATING,
    MICROSECONDS,
    MOST_DIGITS,
    TIMES,
    VOID,
    WHOLE,
    Kind,
    Untranslatable,
    Value,
    digits,
    duck,
    is_exact,
    is_plain,
    name,
    of_json,
    require,
    same,
    text,
)
from headwater.planner.translation.literals import literal

_COMPARED = {"EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">"}
_COMPARED |= {"GreaterThanOrEqual": ">=", "EqualNullSafe": "IS NOT DISTINCT FROM"}
_EQUAL = ("EqualTo", "EqualNullSafe")
_ADDED = {"Add": "+", "Subtract": "-", "Multiply": "*"}
_CAST = (("boolean", "string"), ("timestamp", "date"), ("date", "timestamp"))


def _both(node: Node, children: Sequence[Value]) -> Value:
    one, other = children
    return Value(f"({one.sql} {node.kind.upper()} {other.sql})", "boolean")


def _compared(node: Node, children: Sequence[Value]) -> Value:
    one, other = children
    require(same(one.kind, other.kind), f"{one.kind} compared with {other.kind}")
    require(
        is_plain(one.kind) or (node.kind == "EqualNullSafe" and is_exact(one.kind)),
        "an order of nested values",
    )
    require(node.kind not in _EQUAL or is_exact(one.kind) or one.kind == MICROSECONDS, "floats for equality")
    return Value(f"({one.sql} {_COMPARED[node.kind]} {other.sql})", "boolean")


def _added(node: Node, children: Sequence[Value]) -> Value:
    """A sum, a difference or a product."""
    (one, other), sign = children, _ADDED[node.kind]
    if one.kind == other.kind and (
        one.kind in (*WHOLE, *FLOATING) or (one.kind == MICROSECONDS and sign != "*")
    ):
        return Value(f"({one.sql} {sign} {other.sql})", one.kind)
    mine, theirs = digits(one.kind), digits(other.kind)
    if mine is None or theirs is None:
        raise Untranslatable(f"{one.kind} {sign} {other.kind}")
    (p, s), (q, r) = mine, theirs
    precision, scale = (p + q + 1, s + r) if sign == "*" else (max(p - s, q - r) + max(s, r) + 1, max(s, r))
    require(precision <= MOST_DIGITS, "a decimal that loses digits")
    kind = f"decimal({precision},{scale})"
    wide = "" if sign == "*" else f" :: {duck(kind)}"
    return Value(f"CAST(({one.sql}{wide} {sign} {other.sql}{wide}) AS {duck(kind)})", kind)


def _cast(node: Node, children: Sequence[Value]) -> Value:
    (value,), kind = children, of_json(node.fields["dataType"])
    to, source = digits(kind), value.kind
    if kind == MICROSECONDS and source == MICROSECONDS:
        require("second" in node.fields["dataType"], "an interval that is cut")
        return value
    if kind == MICROSECONDS:
        require(node.children[0].kind == "Literal" and source == "string", "an interval that is computed")
        said = str(node.children[0].fields["value"])
        require(
            node.fields["dataType"] == "interval" and not said.lstrip("-").isdecimal(), "a number of units"
        )
        return literal(said, kind)
    if source in (VOID, kind):
        return Value(f"CAST({value.sql} AS {duck(kind)})", kind)
    if not isinstance(source, str) and not isinstance(kind, str) and same(source, kind):
        return value
    require(isinstance(source, str) and isinstance(kind, str), "a nested cast")
    if source in WHOLE:
        may = kind in WHOLE or kind == "double" or kind == "string" or to is not None
    elif source in FLOATING:
        may = kind == "double"
    elif (had := digits(source)) is not None:
        may = kind in ("string", "double") or (to is not None and to[1] >= had[1])
        value = Value(f"CAST({value.sql} AS VARCHAR)", source) if kind == "double" else value  # rounded once
        if kind == "string" and had[0] == had[1]:  # DuckDB writes no 0 before such a one's point
            require(had[0] < MOST_DIGITS, "a decimal that no other holds")
            value = Value(f"CAST({value.sql} AS {duck(f'decimal({had[0] + 1},{had[1]})')})", source)
    else:
        may = (source, kind) in _CAST or (source in TIMES and kind in TIMES)  # as all is in UTC
    require(may, f"{source} as {kind}")
    return Value(f"CAST({value.sql} AS {duck(kind)})", kind)


def _case(node: Node, children: Sequence[Value]) -> Value:
    pairs = [(children[at], children[at + 1]) for at in range(0, len(children) - 1, 2)]
    otherwise = children[-1] if len(children) % 2 else None
    kind = _common([value for _, value in pairs] + ([otherwise] if otherwise else []))
    cases = " ".join(f"WHEN {condition.sql} THEN {value.sql}" for condition, value in pairs)
    end = f" ELSE {otherwise.sql}" if otherwise else ""
    return Value(f"CASE {cases}{end} END", kind)


def _common(values: Sequence[Value]) -> Kind:
    """The one type of several."""
    kinds = [value.kind for value in values if value.kind != VOID]
    require(bool(kinds) and all(same(kind, kinds[0]) for kind in kinds), "values of several types")
    return kinds[0]


def _if(node: Node, children: Sequence[Value]) -> Value:
    condition, one, other = children
    return Value(f"CASE WHEN {condition.sql} THEN {one.sql} ELSE {other.sql} END", _common([one, other]))


def _first_known(node: Node, children: Sequence[Value]) -> Value:
    return Value(f"coalesce({', '.join(each.sql for each in children)})", _common(children))


def _in(node: Node, children: Sequence[Value]) -> Value:
    value, *among = children
    require(bool(among) and is_exact(value.kind) and is_plain(value.kind))
    require(all(each.kind in (value.kind, VOID) for each in among))
    return Value(f"({value.sql} IN ({', '.join(each.sql for each in among)}))", "boolean")


def _field(node: Node, children: Sequence[Value]) -> Value:
    (value,) = children
    assert not isinstance(value.kind, str)
    found = value.kind["fields"][int(node.fields["ordinal"])]
    return Value(f"struct_extract({value.sql}, {text(found['name'])})", of_json(found["type"]))


def _struct(node: Node, children: Sequence[Value]) -> Value:
    names = [str(each.fields["value"]) for each in node.children[::2]]
    require(all(each.kind == "Literal" for each in node.children[::2]))
    require(len({each.lower() for each in names}) == len(names), "fields of one name")
    values = children[1::2]
    require(all(each.kind not in (VOID, MICROSECONDS) for each in values))
    fields = [{"name": one, "type": each.kind} for one, each in zip(names, values, strict=True)]
    packed = ", ".join(f"{name(one)} := {each.sql}" for one, each in zip(names, values, strict=True))
    return Value(f"struct_pack({packed})", {"type": "struct", "fields": fields})


def _divided(node: Node, children: Sequence[Value]) -> Value:
    one, other = children
    require(one.kind == other.kind)
    sign, kinds = {"Divide": ("/", FLOATING), "IntegralDivide": ("//", WHOLE)}.get(node.kind, ("%", WHOLE))
    require(one.kind in kinds, f"{one.kind} {sign}")
    zero = "error('a division by zero')"
    divided = f"({one.sql} {sign} {other.sql})"
    if node.kind == "Pmod":
        divided = (
            f"CASE WHEN {divided} < 0 THEN ({divided} + {other.sql}) {sign} {other.sql} ELSE {divided} END"
        )
    found = f"CASE WHEN {other.sql} = 0 THEN CAST({zero} AS {duck(one.kind)}) ELSE {divided} END"
    return Value(found, "long" if node.kind == "IntegralDivide" else one.kind)


def _negative(node: Node, children: Sequence[Value]) -> Value:
    (value,) = children
    require(value.kind in (*WHOLE, *FLOATING, MICROSECONDS) or digits(value.kind) is not None)
    return Value(f"(- {value.sql})", value.kind)


def _absolute(node: Node, children: Sequence[Value]) -> Value:
    (value,) = children
    require(value.kind in (*WHOLE, *FLOATING) or digits(value.kind) is not None)
    return Value(f"abs({value.sql})", value.kind)


def _one_zero(node: Node, children: Sequence[Value]) -> Value:
    """The number, NaN and zero having one sign."""
    (value,) = children
    require(value.kind in FLOATING)
    one = f"WHEN isnan({value.sql}) THEN CAST('NaN' AS {duck(value.kind)})"
    zero = f"WHEN {value.sql} = 0 THEN CAST(0 AS {duck(value.kind)})"
    return Value(f"CASE {one} {zero} ELSE {value.sql} END", value.kind)


def _item(node: Node, children: Sequence[Value]) -> Value:
    """An item of an array, by a number from zero on."""
    value, _ = children
    at = node.children[1]
    require(at.kind == "Literal" and at.fields["value"] is not None and int(at.fields["value"]) >= 0)
    number = int(at.fields["value"])
    assert not isinstance(value.kind, str)
    kind = of_json(value.kind["elementType"])
    found = f"list_extract({value.sql}, {number + 1})"
    if node.fields["failOnError"]:
        beyond = f"CAST(error('no such item') AS {duck(kind)})"
        found = f"CASE WHEN len({value.sql}) <= {number} THEN {beyond} ELSE {found} END"
    return Value(found, kind)


def _sequence(node: Node, children: Sequence[Value]) -> Value:
    """All whole numbers from one to another, which may be smaller."""
    require(len(children) == 2, "a sequence with a step")
    one, other = children
    require(one.kind == other.kind and one.kind in WHOLE)
    step = f"CASE WHEN {one.sql} <= {other.sql} THEN 1 ELSE -1 END"
    kind = {"type": "array", "elementType": one.kind, "containsNull": False}
    return Value(f"CAST(generate_series({one.sql}, {other.sql}, {step}) AS {duck(kind)})", kind)


def _plain(template: str, kind: Kind | None = None) -> Callable[[Node, Sequence[Value]], Value]:
    """A function of one value of any type, whose type it keeps unless another is said."""

    def found(node: Node, children: Sequence[Value]) -> Value:
        (value,) = children
        return Value(template.format(value.sql), value.kind if kind is None else kind)

    return found


def _greatest(node: Node, children: Sequence[Value]) -> Value:
    require(is_plain(_common(children)) and all(each.kind != VOID for each in children))
    return Value(f"{node.kind.lower()}({', '.join(each.sql for each in children)})", children[0].kind)


def _bits(node: Node, children: Sequence[Value]) -> Value:
    one, other = children
    require(one.kind == other.kind and one.kind in WHOLE)
    return Value(f"({one.sql} {'&' if node.kind == 'BitwiseAnd' else '|'} {other.sql})", one.kind)


def _is_nan(node: Node, children: Sequence[Value]) -> Value:
    (value,) = children
    require(value.kind in FLOATING)
    return Value(f"coalesce(isnan({value.sql}), false)", "boolean")


FUNCTIONS: dict[str, Callable[[Node, Sequence[Value]], Value]] = {
    "And": _both,
    "Or": _both,
    **dict.fromkeys(_COMPARED, _compared),
    **dict.fromkeys(_ADDED, _added),
    "Abs": _absolute,
    "BitwiseAnd": _bits,
    "BitwiseOr": _bits,
    "CaseWhen": _case,
    "Cast": _cast,
    "Coalesce": _first_known,
    "CreateNamedStruct": _struct,
    "Divide": _divided,
    "GetArrayItem": _item,
    "GetStructField": _field,
    "Greatest": _greatest,
    "If": _if,
    "In": _in,
    "IntegralDivide": _divided,
    "IsNaN": _is_nan,
    "IsNotNull": _plain("({} IS NOT NULL)", "boolean"),
    "IsNull": _plain("({} IS NULL)", "boolean"),
    "Least": _greatest,
    "NormalizeNaNAndZero": _one_zero,
    "Not": _plain("(NOT {})", "boolean"),
    "Pmod": _divided,
    "Remainder": _divided,
    "Sequence": _sequence,
    "UnaryMinus": _negative,
}
