"""Tables of text: fitted to a terminal, whole in a pipe."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.cells import cell_len
from rich.text import Text

from headwater.common import listings
from headwater.common.listings import Listing
from headwater.query.result import Result, write

LONG = "a value of many words, which no terminal has the room for " * 5


class Terminal(io.StringIO):
    """A terminal that keeps what it is sent."""

    def isatty(self) -> bool:
        return True


def lines(listing: Listing, columns: int | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a terminal of so many columns shows; None: what a pipe gets."""
    return printed(lambda out: listings.show([listing], out), columns, monkeypatch)


def printed(show: Any, columns: int | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "vt100")
    monkeypatch.setenv("COLUMNS", str(columns or 20))
    out = io.StringIO() if columns is None else Terminal()
    show(out)
    return out.getvalue().replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "").splitlines()


def sample(**options: Any) -> Listing:
    listing = Listing(["table", "rows read", "last commit", "why"], right=[1], whole=[0], **options)
    listing.row("silver.readings", "1,234,567", "2026-01-01 00:00:00Z", "short")
    listing.row("gold.x", "5", "2026-01-01 00:00:00Z", LONG)
    return listing


def test_a_pipe_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(sample(), None, monkeypatch)
    assert len(found) == 4 and found[3].endswith(LONG.strip()) and found[0].endswith(" why")


@pytest.mark.parametrize("columns", [60, 70, 80, 100, 160])
def test_a_terminal_is_filled_and_never_broken(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(sample(), columns, monkeypatch)
    text = "\n".join(found)
    assert columns - 3 <= max(map(cell_len, found)) <= columns and len(found) <= 5
    assert text.count("…") == (1 if columns >= 70 else 3) and found[-1].rstrip().endswith("…")
    for whole in ("silver.readings", "1,234,567", "gold.x", "table", "rows", "commit"):
        assert whole in text


def test_prose_goes_on_in_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(sample(prose=[2, 3]), 80, monkeypatch)
    assert "…" not in "".join(found) and max(map(cell_len, found)) <= 80
    cells = [line[line.index("2026") :] if "2026" in line else line for line in found[3:]]
    assert " ".join(" ".join(cells).split()).count("no terminal") == 5


def test_names_of_columns_break_at_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Listing(["rows behind", "newest record"], right=[0, 1])
    listing.row("1", "2")
    assert [line.split() for line in lines(listing, 16, monkeypatch)][:2] == [
        ["rows", "newest"],
        ["behind", "record"],
    ]


def test_where_names_do_not_fit_each_row_is_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(sample(), 30, monkeypatch)
    assert "rows read     1,234,567" in [line.rstrip() for line in found]
    assert " ".join(" ".join(found).split()).count("many words") == 5


def test_what_can_be_done_without_goes_before_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(columns: int) -> tuple[list[str], str]:
        listing = Listing(
            ["table", "empty", "rows", "version", "kind"], right=[2, 3], whole=[0, 4], spare=[3, 2, 1]
        )
        listing.row("silver.readings", "", "1,234,567", "12", "python")
        found = lines(listing, columns, monkeypatch)
        return found[0].split(), " ".join(" ".join(found[3:]).split())

    note = "there is no room here: make the window wider, or use --json"
    assert shown(50) == (["table", "empty", "rows", "version", "kind"], "")
    assert shown(45) == (["table", "rows", "version", "kind"], "")
    assert shown(40) == (["table", "rows", "kind"], f"for version {note}")
    assert shown(30) == (["table", "kind"], f"for rows and version {note}")


def test_text_is_no_markup_and_wide_characters_count(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Listing(["[bold]"])
    listing.row("[/x] 漢字漢字漢字漢字漢字")
    listing.row(Text("b"))
    found = lines(listing, 12, monkeypatch)
    assert found[0].strip() == "[bold]" and found[2].startswith("[/x] 漢") and max(map(cell_len, found)) <= 12


def test_a_result_says_where_its_whole_values_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Result(("n", "text"), [(n, "short") for n in range(30)] + [(1_234_567, LONG)])
    found = printed(lambda out: write(rows, "table", out), 60, monkeypatch)
    assert len(found) == 34 and found[2].split() == ["0", "short"] and found[32].rstrip().endswith("…")
    assert "1234567" in found[32] and found[33].startswith("31 rows; what ends in … is whole with --format")
    assert printed(lambda out: write(rows, "table", out), None, monkeypatch)[-1] == "31 rows"


def test_times_are_whole_and_doubles_are_rounded_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = datetime(2026, 11, 24, 11, 25, tzinfo=UTC)
    rows = Result(("starts", "ends", "host", "mean"), [(at, at, "bashful", 36.75958730158731)])
    found = printed(lambda out: write(rows, "table", out), 64, monkeypatch)
    assert found[2].split() == ["2026-11-24", "11:25:00Z", "2026-11-24", "11:25:00Z", "bashful", "36.759587"]
    assert found[3] == "1 row; what is rounded is whole with --format json"
    assert "36.75958730158731" in printed(lambda out: write(rows, "table", out), 90, monkeypatch)[2]


def test_a_value_can_not_move_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Result(("text",), [("a\nb\x1b[2J",), (b"c\r",)])
    assert [line.strip() for line in printed(lambda out: write(rows, "table", out), None, monkeypatch)][
        2:4
    ] == [
        "a\\nb\\x1b[2J",
        "c\\r",
    ]
