"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Project = Annotated[
    Path | None, typer.Option("--project", help="Project folder (default: walk up from here)")
]
Env = Annotated[str, typer.Option("--env", help="Environment: conf/ENV.yaml")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
