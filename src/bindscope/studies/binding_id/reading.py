"""How models are given the scenes of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bindscope.studies.binding_id.scenes import Rule


@dataclass(frozen=True)
class Reading:
    """Scenes as a model reads them.

    Attributes
    ----------
    rule
        How they are drawn.
    template
        In which words (`prompts.Form`).
    text_only
        Whether the text tells what the image would show.
    """

    rule: Rule
    template: str = "paper"
    text_only: bool = False

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Reading:
        """Return what a job's specification asks for."""
        return cls(Rule.of(spec["task"]), spec["template"], spec["text_only"])
