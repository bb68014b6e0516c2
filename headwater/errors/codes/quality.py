"""Suites of expectations in `quality/`, and `headwater quality`."""

from __future__ import annotations

from typing import Literal

from headwater.errors.codes.meaning import Meaning

Quality = Literal[
    "SUITE_INVALID",
    "SUITE_MISSING",
    "SUITE_EXISTS",
    "EXPECTATION_INVALID",
    "EXPECTATION_TWICE",
    "EXPECTATION_NOT_FOR_BATCHES",
    "EXPECTATIONS_DEPEND",
    "ORDER_WITHOUT_KEYS",
    "ACTION_NOT_POSSIBLE",
    "EXPECTATION_FAILED",
    "NOT_VALIDATED",
]

MEANINGS: dict[Quality, Meaning] = {
    "SUITE_INVALID": Meaning(
        "ProjectError",
        "A file is no suite: not JSON, an unknown key, or `meta.every` is no such interval.",
        "Mend what the message names.",
    ),
    "SUITE_MISSING": Meaning(
        "QualityError",
        "A table that is to be validated has no suite.",
        "`headwater quality suggest TABLE --write`.",
    ),
    "SUITE_EXISTS": Meaning(
        "QualityError",
        "A suggestion is not written over a suite that is there.",
        "Leave `--write` out: it is printed.",
    ),
    "EXPECTATION_INVALID": Meaning(
        "ProjectError", "An expectation has arguments that do not fit it, or the table.", "Mend the suite."
    ),
    "EXPECTATION_TWICE": Meaning(
        "ProjectError", "Two expectations of a suite have one id.", "Give one an id of its own."
    ),
    "EXPECTATION_NOT_FOR_BATCHES": Meaning(
        "ProjectError",
        "An expectation can't be judged while rows are written.",
        "Write `meta.scope = 'table'`: `headwater quality run` judges it.",
    ),
    "EXPECTATIONS_DEPEND": Meaning(
        "ProjectError",
        "Two expectations keep rows out by what others hold, so the cut of batches would decide.",
        "Let one of the two warn, or expect it of a table below.",
    ),
    "ORDER_WITHOUT_KEYS": Meaning(
        "ProjectError",
        "An expectation of order does not say among which rows.",
        "Write `meta.within`, or `meta.scope = 'table'`.",
    ),
    "ACTION_NOT_POSSIBLE": Meaning(
        "ProjectError",
        "The action of an expectation can't be taken where it is judged.",
        "Write one of those that the message names.",
    ),
    "EXPECTATION_FAILED": Meaning(
        "FlowError",
        "Rows fail an expectation whose action is `fail`; nothing more is written.",
        "Mend the rows' source, the definition or the suite, and run again.",
    ),
    "NOT_VALIDATED": Meaning(
        "QualityError", "There is no validation to show yet.", "`headwater quality run`."
    ),
}
