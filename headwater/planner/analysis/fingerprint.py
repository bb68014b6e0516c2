"""What tells whether a definition has changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from typing import Any

from headwater.errors import NOWHERE
from headwater.project import code, uses
from headwater.project.definitions import Declaration, Files, Table, Topic, View
from headwater.project.load import Project
from headwater.project.pipelines import text_of


def fingerprint(project: Project, definition: Declaration) -> str:
    """A hash of what a definition, its suite and its reference tables' DDL say, and what its function uses.

    Other definitions of its file play no part, nor do comments, docstrings and layout.

    It needs no Spark session.
    """
    if isinstance(definition, Topic):
        text = definition.topic
    elif isinstance(definition, Files):
        text = f"{definition.pattern} {definition.format}"
    elif isinstance(definition, Table) and definition.sql is not None:
        text = f"{_text(definition)} {definition.emit} {definition.allowed_lateness}"
        text += f" {definition.decode}" if definition.decode else ""
    elif isinstance(definition, Table) and definition.flows:
        text = " ".join(map(_text, definition.flows))
    elif isinstance(definition, Table) and definition.process is not None:
        process = definition.process
        text = (
            f"{process.keys} {process.columns} {process.state} {process.ttl} {definition.event_time} "
            f"{definition.delay} {code.form_of(process.function)}{_uses(process.function)}"
        )
        text += f" {process.streams}" if process.is_named else ""
    elif isinstance(definition, Table) and definition.function is not None:
        text = (
            f"{definition.decode} {definition.skew} {definition.emit} {definition.allowed_lateness} "
            f"{_text(definition)}"
        )
    else:
        text = repr(definition)
    if isinstance(definition, Table):
        text += "".join(f"\n{_text(view)}" for view in definition.views)
        references = project.references
        text += "".join(f"\n{references[name].ddl}" for name in definition.sources if name in references)
    suite = project.suites.get(definition.name)
    rules = [asdict(replace(rule, where=NOWHERE)) for rule in suite.rules] if suite else []
    return hashlib.sha256(f"{text}{json.dumps(rules)}".encode()).hexdigest()[:16]


def _text(definition: Table | View) -> str:
    """What a query or function says, with what it reads and uses."""
    if definition.sql is not None:
        return definition.sql.bare(definition.inputs)
    return f"{definition.inputs} {text_of(definition.function, code.form_of)}{_uses(definition.function)}"


def _uses(function: Any) -> str:
    found = {name: digests.split()[-1] for name, digests in uses.of(function).items()}
    return json.dumps(found) if found else ""
