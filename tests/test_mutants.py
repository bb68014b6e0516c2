"""The planted defects still can be planted; whether they are found, `make mutants` says."""

from __future__ import annotations

import subprocess

import pytest
from mutants.__main__ import ROOT, Mutant, all_of

MUTANTS = all_of()


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 20
    assert sum(mutant.finder == "the simulator" for mutant in MUTANTS) >= 12


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.patch.stem for mutant in MUTANTS])
def test_a_mutant_applies_and_says_what_it_breaks(mutant: Mutant) -> None:
    assert mutant.breaks.endswith(".")
    patch = mutant.patch
    check = subprocess.run(
        ["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, f"{patch.name}: make it anew, the code has changed: {check.stderr}"
