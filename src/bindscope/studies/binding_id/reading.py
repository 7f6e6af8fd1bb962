"""How models are given the scenes of a task, and what they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bindscope.studies.binding_id.tasks.prompts import Form, Template
from bindscope.studies.binding_id.tasks.scenes import Rule
from bindscope.studies.binding_id.tasks.task import Asked, Attribute


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
    answer
        What questions ask for: the item of a thing, or the slot of an item's thing.
    """

    rule: Rule
    template: Template = "paper"
    text_only: bool = False
    answer: Asked = "item"

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Reading:
        """Return what a job's specification asks for."""
        return cls(Rule.of(spec["task"]), spec["template"], spec["text_only"], spec["answer"])

    @property
    def form(self) -> Form:
        """How scenes are put into words."""
        return Form(self.template, self.rule.mention, self.answer, image=not self.text_only)

    @property
    def by(self) -> Attribute:
        """The attribute by which questions name a thing: what is asked for is another."""
        return self.rule.ask if self.answer == "item" else "item"
