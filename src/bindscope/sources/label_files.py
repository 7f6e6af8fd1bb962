"""The files below a release's folder that labels are read from, without the masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bindscope.config.segmented import SegmentedSource

ADE20K_INDEX, ADE20K_BENCHMARK = "index_ade20k.pkl", "objectInfo150.csv"


def label_files(source: SegmentedSource) -> tuple[str, ...]:
    """Return their names, relative to the source's `path`."""
    if source.kind == "ade20k":
        return ADE20K_INDEX, ADE20K_BENCHMARK
    return tuple(f"annotations/panoptic_{part}.json" for part in source.parts)
