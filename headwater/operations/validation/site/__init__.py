"""The frame of the Data Docs' pages: ours around what Great Expectations renders, with nothing to load.

Great Expectations' own frame takes style sheets, scripts, fonts and pictures from other hosts. These
templates stand before those of the same name; each page carries its style and its one script, and a
Content-Security-Policy that lets the browser load nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import ChoiceLoader, Environment, FileSystemLoader

_HERE = Path(__file__).parent


class Page(DefaultJinjaPageView):
    """A page of one suite or one validation."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _prefer_ours(self.env)


class Index(DefaultJinjaIndexPageView):
    """The first page."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _prefer_ours(self.env)


def _prefer_ours(env: Environment) -> None:
    theirs = env.loader
    assert theirs is not None
    env.loader = ChoiceLoader([FileSystemLoader(_HERE), theirs])
    script = (_HERE / "site.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    env.globals["site_style"] = (_HERE / "site.css").read_text(encoding="utf-8")
    env.globals["site_script"] = script
    env.globals["site_policy"] = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
