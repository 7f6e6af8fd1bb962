"""What a reader sees instead of the study's slugs: quantities, families, token inputs, models.

A probe family says its words itself (`families`); a token input without an entry shows its slug.
"""

from __future__ import annotations

import re
from typing import Final

from bindscope.figures.colors import AMBER, BLUE, GREEN, GREY, INK, PINK, SKY
from bindscope.studies.binding_information.families import Label, ProbeOptions
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    COUNTS,
    FEATURES,
    PAIRING,
    WHOLE,
)
from bindscope.studies.binding_information.registry import options_of

WORDS: Final = {
    FEATURES: "features",
    COUNTS: "counts",
    PAIRING: "pairing",
    BEYOND: "counts and pairing",
    WHOLE: "objects",
}
COLORS: Final = {FEATURES: GREY, COUNTS: AMBER, PAIRING: BLUE, BEYOND: SKY}
_TOKENS: Final = {
    "cls": Label("[CLS]", "the [CLS] token", BLUE),
    "mean": Label("mean of patches", "the mean of the patch tokens", AMBER),
    "cls_mean": Label("[CLS] and mean", "[CLS] and the mean of the patch tokens", PINK),
    "patches": Label("patches", "the patch tokens", GREEN),
}
ARRAYS: Final = "arrays"  # dataset, model and kind of model of a result of arrays
PAPERS: Final = "_paper"
FORMULA: Final = "paper's formula"  # of the binding problem paper, on the probes of this run
FORMULA_ENTRY: Final = f"{FORMULA} (H \u2212 CE)"  # in a legend
CONTROL: Final = " (positive control)"  # after a name
OBJECTIVES: Final = {
    "objects": "trained to classify the objects",
    "features": "trained to classify the features",
    "captions": "trained on captions that pair the words",
    "captions_unpaired": "trained on captions of the same words, unpaired",
    "masked": "trained to predict masked patches",
    "self_distillation": "trained by self-distillation",
    "none": "not trained",
}
# Objectives that differ in the pairing alone: the first one's captions say it.
CONTRAST: Final = ("captions", "captions_unpaired")


def label_family(family: str) -> Label:
    """Return how a probe family is shown; one that ends with `PAPERS` has the paper's training."""
    if family.endswith(PAPERS):
        base, protocol = label_family(family.removesuffix(PAPERS)), "published protocol"
        words = f"{base.words} fitted by the {protocol}"
        return Label(f"{base.name}, {protocol}", words, INK, f"{base.tick}\n{protocol}")
    try:
        options = options_of(family)
    except ValueError:  # of a package that is broken now
        options = None
    label: Label = (options or ProbeOptions).words(family)
    return label


def label_tokens(tokens: str) -> Label:
    """Return how a token input is shown."""
    return _TOKENS.get(tokens, Label(tokens, f"the tokens {tokens}", INK))


def show_model(name: str, is_control: bool) -> str:
    """Return how a model or group is shown: a positive control says so."""
    return f"{name}{CONTROL}" if is_control else name


def objective_of(source: str) -> str:
    """Return what a model of bindscope was trained for, by its source; empty of all others."""
    kind, _, name = source.partition(":")
    if kind == "zoo":
        names = "|".join(OBJECTIVES).replace("_", "-")
        match = re.fullmatch(rf"(?:.*-)?({names})-\d+", name)
        return match[1].replace("-", "_") if match else ""
    return name if kind == "controlled" else ""


def is_positive_control(source: str) -> bool:
    """Whether the pairing was a model's training objective: to predict O linearly from [CLS]."""
    return objective_of(source) == "objects"
