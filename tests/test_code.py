"""What is compared of a definition in Python: its code, and not what is said beside it."""

from __future__ import annotations

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
