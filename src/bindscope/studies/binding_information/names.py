"""What a reader sees instead of the study's slugs: families, token inputs, flags, statuses.

A probe family says its words itself (`families`); a token input without an entry shows its slug.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bindscope.figures.colors import AMBER, BLUE, GREEN, GREY, INK, PINK, SKY
from bindscope.studies.binding_information.families import Label, ProbeOptions
from bindscope.studies.binding_information.registry import options_of
from bindscope.studies.binding_information.schemas import STANDARD_ERRORS


@dataclass(frozen=True)
class PartLabel:
    """How a part of the information about objects is shown: in words, in mathematics, its color."""

    name: str
    entropy: str
    information: str
    color: str


_PARTS: Final = {
    "what": PartLabel("features", "H(F)", "I(F;Z)", GREY),
    "how_many": PartLabel("counts", "H(M|F)", "I(M;Z|F)", AMBER),
    "pairing": PartLabel("pairing", "H(O|M)", "I(O;Z|M)", BLUE),
    "beyond": PartLabel("counts and pairing", "H(O|F)", "I(O;Z|F)", SKY),
}
_TOKENS: Final = {
    "cls": Label("[CLS]", "the [CLS] token", BLUE),
    "mean": Label("mean of patches", "the mean of the patch tokens", AMBER),
    "cls_mean": Label("[CLS] and mean", "[CLS] and the mean of the patch tokens", PINK),
    "patches": Label("patches", "the patch tokens", GREEN),
}
PAPERS: Final = "_paper"
STATUS_WORDS: Final = {
    "failed": "the fit did not end, and numbers are missing",
    "undefined": "measured, but a quantity has no value",
}
FLAG_WORDS: Final = {
    "above_prior": "a probe of the row predicts worse than the distribution of the scenes alone "
    "would; an estimate from that loss is negative, one from another loss need not be",
    "above_truth": f"a lower bound is more than {STANDARD_ERRORS:g} standard errors above the "
    "known truth: a defect, or bad luck",
    "assumed_prior": "the distribution of these scenes is not known; H(O) and H(O|F) are estimated "
    "from the train split and likely too high, so that a difference from them is no lower bound",
    "collapsed": "a probe of the row gives the same answer to every scene",
    "diverged": "a probe of the row predicts worse after it was fitted than before",
    "not_converged": "fitting a probe of the row longer would still lower its validation loss",
    "prior": "the validation scenes prefer the distribution of the scenes alone to a probe of the "
    "row; the bound on that part is 0",
}


def label_family(family: str) -> Label:
    """Return how a probe family is shown; one that ends with `PAPERS` has the paper's training."""
    if family.endswith(PAPERS):
        base = label_family(family.removesuffix(PAPERS))
        name, words = (
            f"{base.name}, published protocol",
            f"{base.words} fitted by the published protocol",
        )
        return Label(name, words, INK, f"{base.short or base.name}\npublished protocol")
    try:
        options = options_of(family)
    except ValueError:  # of a package that is broken now
        options = None
    label: Label = (options or ProbeOptions).words(family)
    return label


def label_part(part: str) -> PartLabel:
    """Return how a part is shown: `what`, `how_many`, `pairing`, or `beyond` for the last two."""
    return _PARTS[part]


def label_tokens(tokens: str) -> Label:
    """Return how a token input is shown."""
    return _TOKENS.get(tokens, Label(tokens, f"the tokens {tokens}", INK))


def family_tick(family: str) -> str:
    """Return a family's name as it stands under a tick."""
    label = label_family(family)
    return label.short or label.name
