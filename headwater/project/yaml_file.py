"""A YAML file of keys with values, each key once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from yaml.error import MarkedYAMLError

from headwater.errors import ConfError


class _Loader(yaml.SafeLoader):
    """YAML in which a key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for at, (key, _) in enumerate(node.value):
            if key.value in keys[:at]:
                raise MarkedYAMLError(problem=f"key '{key.value}' comes twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[str, Any]:
    """What the file says.

    Raises:
        ConfError: it is no text, or not YAML, or has no keys.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader) or {}
    except UnicodeDecodeError:
        raise ConfError(
            f"{path}: this is no text in UTF-8", code="CONF_INVALID", file=path, hint="save it as such"
        ) from None
    except (yaml.YAMLError, ValueError) as e:  # ValueError: of a date that there is not
        raise ConfError(
            f"{path}: not valid YAML: {' '.join(str(e).split())}", code="CONF_INVALID", file=path
        ) from None
    if not isinstance(raw, dict):
        raise ConfError(
            f"{path}: this is a {type(raw).__name__}, not keys with values",
            code="CONF_INVALID",
            file=path,
            hint="write 'kafka: embedded', for one",
        )
    return raw
