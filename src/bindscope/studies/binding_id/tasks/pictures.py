"""What draws the images of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bindscope.studies.binding_id.reading import Reading
from bindscope.studies.binding_id.tasks.images import Images
from bindscope.studies.binding_id.tasks.looks import Look

if TYPE_CHECKING:
    from bindscope.studies.binding_id.tasks.composites import Composites


def pictures_of(reading: Reading) -> Images | Composites:
    """Return the renderer, or what puts cut-outs on backgrounds."""
    rule = reading.rule
    if rule.cutouts is None or rule.cutouts.shown is None or reading.text_only:
        return Images(rule.layout, Look.of(rule))
    from bindscope.studies.binding_id.tasks.composites import Composites  # imports Pillow

    return Composites(rule.layout, rule.cutouts.shown)
