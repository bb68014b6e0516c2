"""What is compared of a definition in Python: its code, and not what is said beside it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.project import code

PLAIN = """def visits(raw):
    named = raw.where("n >= 0  # of all")
    return named.select(
        "user",
        "n",
    )"""


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        '@hw.table(source="bronze.raw")\n' + PLAIN + "\n",
        '@hw.table(\n    source="bronze.raw",  # all\n    delay="10 seconds",\n)\n@other\n' + PLAIN,
        PLAIN.replace("(raw):\n", '(raw):\n    """One row per visit."""\n\n'),
        PLAIN.replace("(raw):\n", '(raw):  # of a topic\n    """One row\n\n    per visit: é."""\n'),
        PLAIN.replace('"user",\n', '"user",  # who\n\n        # how many\n'),
        "\n".join(f"    {line}" for line in PLAIN.splitlines()),
    ],
)
def test_what_makes_no_rows_is_not_compared(text: str) -> None:
    assert code.of(text) == PLAIN


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("n >= 0", "n >= 1"),
        PLAIN.replace("# of all", "# of  all"),
        PLAIN.replace("(raw)", "(raw, more=1)"),
        PLAIN.replace("    return", '    """No docstring."""\n    return'),
        PLAIN.replace("(raw):\n", '(raw):\n    """One."""; raw = None\n'),
    ],
)
def test_all_else_is(text: str) -> None:
    assert code.of(text) != PLAIN


def test_lines_of_a_text_are_code_even_where_they_are_empty() -> None:
    text = 'def t(raw):\n    return raw.sql("""\n\n        SELECT 1  # one\n    """)'
    assert code.of(text) == text


def test_what_is_no_function_stays_as_it_is() -> None:
    for text in ("total = hw.table(source='a')(lambda a: a)  # all", "    lambda a: (a,", "x = 1\ny = 2\n"):
        assert code.of(text).strip() == text.strip()


def test_a_docstring_on_the_line_of_its_function_stays() -> None:
    text = 'def t(raw): """Nothing."""'
    assert code.of(text) == text


def test_flows_ask_for_their_code_at_the_same_time() -> None:
    text = "def t(raw):\n" + "".join(f"    x{n} = f(raw + {n}, b=[1, (2, 3)])\n" for n in range(60))

    laid = code.form(text)
    assert laid != text

    class Ring:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:  # Python's collector may give the interpreter to another thread here
            sum(range(20))

    def ask(_: int) -> set[str]:
        found = set()
        for _ in range(100):
            [Ring() for _ in range(30)]
            found.add(code.of(text))
            assert code.form(text) == laid
        return found

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert set().union(*threads.map(ask, range(8))) == {text.rstrip()}
    finally:
        sys.setswitchinterval(before)


def test_layout_changes_nothing() -> None:
    text = """def t(raw):
    return raw.where("n > 0", 'm < 1').select(
        "a",
        "b",
    )"""
    other = """def t(
    raw,
):
    return (
        raw
        .where('n > ' "0", "m < 1").select("a", "b")
    )"""
    assert code.form(text) == code.form(other)
    assert (
        code.form(text.replace('"b"', "'c'")) != code.form(other) != code.form(text.replace('"b"', '("b",)'))
    )
    assert code.form("t = lambda raw: raw)") == "t = lambda raw: raw)"
