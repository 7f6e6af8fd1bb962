"""What the study's tables hold; how they are made is in `tables`."""

from __future__ import annotations

from collections.abc import Sequence

from bindscope.studies.same_object.columns import (
    ROW_KEY,
    SAME_OBJECT_COLUMNS,
    SAME_OBJECT_RULES,
    STRATA_COLUMNS,
    STRATA_KEY,
    STRATA_RULES,
)
from bindscope.tables.rules import layer_number
from bindscope.tables.schema import (
    KEYS,
    Column,
    TableSchema,
    count,
    label,
    share,
)

_FAMILY = label("family", "What family of probe it is.", "config `probes[].family`")
_GRID = label("grid", "Rows x columns of patches.", "`patch_samples`", pattern=r"^[0-9]+x[0-9]+$")
_PAIRED = "95 % bootstrap over test images, drawn for both probes at once."


def _lead(name: str, meaning: str) -> list[Column]:
    return [
        share(f"{name}{end}", "share of pairs", words, "`leads`", low=-1, null="allowed")
        for end, words in (("", meaning), ("_low", _PAIRED), ("_high", _PAIRED))
    ]


_ABOUT = (
    Column("n_layers", "int64", "blocks", "Blocks of the model; empty without one.", "config",
           null="allowed", low=0),
    count("n_train_images", "images", "Train images with pairs.", "`patch_samples`"),
    count("n_val_images", "images", "Validation images with pairs.", "`patch_samples`"),
    count("n_skipped", "images", "Test images without pairs; the attribute `skipped` of "
          "`patch_samples` lists them with the reason.", "`patch_samples`"),
    *_lead("quadratic_lead", "Accuracy of the quadratic probe of the same tokens, minus this."),
    *_lead(
        "quadratic_position_lead",
        "Accuracy of the quadratic probe with positions, of the same tokens, minus this.",
    ),
    *_lead("position_lead", "This accuracy, minus that of the probe of positions alone."),
    *_lead("image_majority_lead", "This accuracy, minus `image_majority_accuracy`."),
    *_lead("last_layer_lead", "This accuracy, minus that of the same probe after the last block."),
)  # fmt: skip


def _with_context(columns: Sequence[Column], about: Sequence[Column]) -> tuple[Column, ...]:
    """Add what the jobs of the study know of a row, before the keys at its end."""
    own = columns[: len(columns) - len(KEYS)]
    return (*own[:3], _FAMILY, _GRID, *own[3:], *about, *KEYS)


SAME_OBJECT_SCHEMA = TableSchema(
    name="same_object",
    version=2,
    description="One row per dataset, model, layer, probe of pairs, control, rank and probe seed. "
    "Every number is measured on the frozen pairs of the test split, which all models of a patch "
    "grid share.",
    columns=_with_context(SAME_OBJECT_COLUMNS, _ABOUT),
    key=(*ROW_KEY, "grid"),
    rules=SAME_OBJECT_RULES,
    order={"layer": layer_number},
)
STRATA_SCHEMA = TableSchema(
    name="same_object_strata",
    version=2,
    description="The scores of `same_object` for parts of the pairs: of one class or of two, by "
    "the distance of the patches and the size of the smaller object; by texture; by whether both "
    "patches were seen in one forward pass, and show one piece of their object.",
    columns=_with_context(STRATA_COLUMNS, ()),
    key=(*STRATA_KEY, "grid"),
    rules=STRATA_RULES,
    order={"layer": layer_number},
)
