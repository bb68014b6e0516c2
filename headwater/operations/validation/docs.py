"""The Data Docs: Great Expectations' pages of the latest validations, as files that need no server.

    <folder>/index.html       what was validated, the newest first
    <folder>/validations/     a page for each of the last 10 validations of a table
    <folder>/expectations/    a page for each suite
    <folder>/results/         what the pages are made of: Great Expectations' results, as JSON

A site is built beside the folder and takes its place in one step, one build at a time: whoever opens a
page finds the old site or the new one, and two builds do not mix
(https://github.com/great-expectations/great_expectations/issues/8294).
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from headwater.common import locks
from headwater.errors import QualityError
from headwater.operations.validation import gx
from headwater.operations.validation.results import Validation

KEPT = 10  # validations of a table
_MARK = ".headwater-docs"  # in a folder that may be replaced
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of renameat2(2)


def check(folder: Path) -> None:
    """Check that the Data Docs may be written to a folder.

    Raises:
        QualityError: it holds something else, which a new site would replace.
    """
    if folder.exists() and not (folder / _MARK).exists() and (folder.is_file() or any(folder.iterdir())):
        raise QualityError(
            f"{folder} holds something else than Data Docs",
            code="FOLDER_TAKEN",
            file=folder,
            hint="name a new folder with --docs",
        )


def build(folder: Path, run_id: str, validations: Sequence[Validation]) -> Path:
    """Add validations to the Data Docs in a folder; their first page.

    Raises:
        QualityError: see `check`.
    """
    folder = folder.resolve()
    with _alone(folder):
        check(folder)
        new = folder.with_name(f".{folder.name}.new-{uuid.uuid4().hex[:8]}")
        try:
            new.mkdir()
            (new / _MARK).touch()
            _keep(folder / "results", new / "results", run_id, validations)
            _render(new)
            _swap(new, folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return folder / "index.html"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One build at a time; what a killed one has left is removed."""
    with locks.alone(folder.with_name(f".{folder.name}.lock")):
        for left in folder.parent.glob(f".{folder.name}.new-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _keep(old: Path, new: Path, run_id: str, validations: Sequence[Validation]) -> None:
    """The results to show: the new ones, and of earlier ones as many as are kept."""
    if old.is_dir():
        shutil.copytree(old, new)
    for one in validations:
        of_table = new / one.table
        of_table.mkdir(parents=True, exist_ok=True)
        document = {
            **one.document,
            "table": one.table,
            "version": one.version,
            "generation": one.generation,
            "run_id": run_id,
            "validated_at": one.validated_at.isoformat(),
        }
        name = f"{one.validated_at:%Y%m%dT%H%M%S.%fZ}-{run_id[-6:]}.json"
        (of_table / name).write_text(json.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")
        for outdated in sorted(of_table.glob("*.json"))[:-KEPT]:
            outdated.unlink()


def _render(site: Path) -> None:
    """The pages of all results below a site."""
    from great_expectations.render.renderer.site_builder import SiteBuilder

    context = gx.context()
    for of_table in sorted((site / "results").iterdir()):
        documents = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(of_table.glob("*.json"))]
        for document in documents:
            _add_result(context, document)
        _add_suite(context, documents[-1])
    page = {"class_name": "Page", "module_name": "headwater.operations.validation.site"}
    SiteBuilder(
        data_context=context,
        site_name="Headwater",
        show_how_to_buttons=False,
        store_backend={"class_name": "TupleFilesystemStoreBackend", "base_directory": str(site)},
        runtime_environment={"data_context": context},
        site_section_builders={
            "expectations": {"view": page},
            "validations": {"view": page},
            "profiling": "None",
        },
        site_index_builder={
            "class_name": "DefaultSiteIndexBuilder",
            "view": {**page, "class_name": "Index"},
        },
    ).build()
    shutil.rmtree(site / "static")  # pictures and fonts that no page of ours has
    made, wanted = (len(list(site.glob(kinds))) for kinds in ("validations/**/*.html", "results/*/*.json"))
    if made != wanted:  # Great Expectations logs what it can't draw, and goes on
        raise RuntimeError(f"Great Expectations drew {made} of {wanted} validations")


def _add_result(context: Any, document: dict[str, Any]) -> None:
    """Show a result under the name of its table, with what was read."""
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    table, version = document["table"], document["version"]
    at = datetime.fromisoformat(document["validated_at"])
    run = RunIdentifier(run_name=f"version-{version}", run_time=at)
    result = document["result"]
    result["suite_name"] = table
    for one in result["results"]:
        one["expectation_config"]["id"] = None  # in a store it has to be a UUID
    result["meta"] = {
        "great_expectations_version": result["meta"]["great_expectations_version"],
        "run_id": run.to_json_dict(),
        "validation_time": at.isoformat(),
        "batch_spec": {
            "data_asset_name": table,
            "version": version,
            "generation": document["generation"],
            "run_id": document["run_id"],
        },
    }
    key = ValidationResultIdentifier(
        expectation_suite_identifier=ExpectationSuiteIdentifier(name=table),
        run_id=run,
        batch_identifier=f"{table}-version-{version}",
    )
    store = context.validation_results_store
    store.set(key, store.deserialize(json.dumps(result)))


def _add_suite(context: Any, document: dict[str, Any]) -> None:
    """Show a suite under the name of its table; ids are Great Expectations' own in a store."""
    from great_expectations import ExpectationSuite

    found = document["suite"]
    expectations = [{**expectation, "id": None} for expectation in found["expectations"]]
    context.suites.add(
        ExpectationSuite(name=document["table"], expectations=expectations, meta=found.get("meta"))
    )


def _swap(new: Path, folder: Path) -> None:
    """Put a site in the place of the old one in one step; the old one is then where the new one was."""
    if not folder.exists():
        new.rename(folder)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_HERE, os.fsencode(new), _HERE, os.fsencode(folder), _EXCHANGE) == 0:
        return
    aside = new.with_name(f"{new.name}-old")  # a file system that can't exchange: two steps
    folder.rename(aside)
    new.rename(folder)
    shutil.rmtree(aside)
