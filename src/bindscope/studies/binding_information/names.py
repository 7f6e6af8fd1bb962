"""What a reader sees instead of the study's slugs: quantities, families, token inputs.

A probe family says its words itself (`families`); a token input without an entry shows its slug.
"""

from __future__ import annotations

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
PAPERS: Final = "_paper"


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
