"""How models are given the scenes of a task, and what they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bindscope.studies.binding_id.tasks.prompts import Form, Template
from bindscope.studies.binding_id.tasks.scenes import Rule
from bindscope.studies.binding_id.tasks.task import Attribute


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
    template: Template = "paper"
    text_only: bool = False

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Reading:
        """Return what a job's specification asks for."""
        return cls(Rule.of(spec["task"]), spec["template"], spec["text_only"])

    @property
    def form(self) -> Form:
        """How scenes are put into words."""
        return Form(self.template, self.rule.mention, image=not self.text_only)

    @property
    def by(self) -> Attribute:
        """The attribute by which questions name a thing."""
        return self.rule.ask
