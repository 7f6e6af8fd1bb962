"""Models whose source does not exist: refused before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bindscope.config.models import local_path
from bindscope.config.wording import suggest
from bindscope.core.errors import ConfigError

DECIDES_NOTHING = True

_REGISTERED = re.compile(r"@register_model\s+def (\w+)")


def refuse_missing_sources(config: Mapping[str, Any], source: str) -> None:
    """Refuse model names that timm does not have, and paths that do not exist.

    Parameters
    ----------
    config
        The configuration, as YAML has it.
    source
        Its files, for the message.

    Raises
    ------
    ConfigError
        For the first of them.
    """
    for i, model in enumerate(config.get("models") or ()):
        text = str(model.get("source", "")) if isinstance(model, Mapping) else ""
        where = f"{source}: models.{i}.source"
        kind, _, name = text.partition(":")
        path = local_path(text) if kind in ("timm", "hf", "path") else None
        if path and not Path(path).expanduser().exists():
            raise ConfigError(where, f"there is no file or folder {path}", "correct the path")
        architecture = re.split(r"[.:@]", name)[0]
        if kind == "timm" and (words := _why_unknown(architecture)):
            raise ConfigError(where, words, "timm.list_models() lists all names")


def _why_unknown(architecture: str) -> str:
    """Say that timm has no such model; empty if it may have one."""
    texts = list(_model_files())
    # Names that timm still takes for those of its models are quoted in its files.
    if not texts or any(f"'{architecture}'" in text for text in texts):
        return ""
    names = {name for text in texts for name in _REGISTERED.findall(text)}
    if architecture in names:
        return ""
    return f"timm has no model {architecture!r}{suggest(architecture, sorted(names))}"


def _model_files() -> Iterator[str]:
    """Yield the code of timm's models, as text: an import would take seconds."""
    timm = find_spec("timm")
    if timm and timm.origin:
        for file in Path(timm.origin).parent.glob("models/*.py"):
            yield file.read_text(encoding="utf-8")
