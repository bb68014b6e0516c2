"""Functions of texts, which are compared by their bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from headwater.planner.nodes import Node
from headwater.planner.translation.kinds import Value, require, text

_OF_TEXTS = {"StartsWith": "starts_with", "EndsWith": "ends_with", "Contains": "contains"}
_PATTERN = re.compile(
    r"\^?(?:"
    r"[A-Za-z0-9 _\-:/@,;%=~<>'\"]|\\[.\-+*?()\[\]{}|^$/]|\\[dw]|"  # a character, or one of these
    r"\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 _:/@,.;%=+*?(){}|]|\\[.\-\[\]\\^dw])+-?\]|"  # of a class
    r"\((?:\?:)?(?![?*+])|\)|\||[?*+](?![?+*])|\{\d{1,3}(?:,\d{0,3})?\}(?![?+*])"  # groups, and how often
    r")*\$?"
)
_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"  # what `$` is to Java


def _concatenated(node: Node, children: Sequence[Value]) -> Value:
    require(bool(children) and all(each.kind == "string" for each in children))
    return Value(f"({' || '.join(each.sql for each in children)})", "string")


def _of_texts(node: Node, children: Sequence[Value]) -> Value:
    require(all(each.kind == "string" for each in children))
    return Value(f"{_OF_TEXTS[node.kind]}({', '.join(each.sql for each in children)})", "boolean")


def _length(node: Node, children: Sequence[Value]) -> Value:
    (value,) = children
    require(value.kind == "string")
    return Value(f"CAST(length({value.sql}) AS INTEGER)", "integer")


def _matches(node: Node, children: Sequence[Value]) -> Value:
    """Whether a text has a part that matches a pattern which means the same to Java and RE2."""
    value, _ = children
    pattern = node.children[1]
    require(value.kind == "string" and pattern.kind == "Literal", "a pattern that is computed")
    said = str(pattern.fields["value"])
    require(_PATTERN.fullmatch(said) is not None, said)
    if said.endswith("$"):
        said = f"{said[:-1]}{_END}"
    return Value(f"regexp_matches({value.sql}, {text(said)})", "boolean")


def _like(node: Node, children: Sequence[Value]) -> Value:
    value, _ = children
    pattern = node.children[1]
    require(value.kind == "string" and pattern.kind == "Literal" and "\\" not in str(pattern.fields["value"]))
    require(node.fields["escapeChar"] is None, "LIKE … ESCAPE")
    return Value(f"({value.sql} LIKE {text(str(pattern.fields['value']))})", "boolean")


OF_TEXTS: dict[str, Callable[[Node, Sequence[Value]], Value]] = {
    "Concat": _concatenated,
    "Length": _length,
    "Like": _like,
    "RLike": _matches,
    **dict.fromkeys(_OF_TEXTS, _of_texts),
}
