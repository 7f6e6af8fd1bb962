"""Published vision-language models, and those of a folder, as engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from bindscope.studies.binding_id.images import Images
from bindscope.studies.binding_id.looks import Look
from bindscope.studies.binding_id.prompts import Form, Template
from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.task import Pictures
from bindscope.studies.binding_id.vlm import loading
from bindscope.studies.binding_id.vlm.fast import FastEngine


def load(
    model: Mapping[str, Any], reading: Reading, weights: Path | None
) -> tuple[FastEngine, Pictures]:
    """Load a model of the configuration, and draw the images that it reads.

    Parameters
    ----------
    model
        Its section, as JSON.
    reading
        How it is given scenes.
    weights
        Manifest of the rule that downloaded it, where one did.
    """
    rule, template = reading.rule, cast("Template", reading.template)
    form = Form(template, rule.mention, image=not reading.text_only)

    pictures = Images(rule.layout, Look.of(rule))
    return loading.load(model, form, weights), pictures
