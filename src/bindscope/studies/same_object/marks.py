"""What rows and weights are called by jobs and by what reads them."""

from __future__ import annotations

NO_MODEL = "none"  # model and layer of what reads labels and positions alone
MEAN_HEAD = "mean"  # attention averaged over the heads of a block
# Correlations of attention with a probe's scores.
MEASURES = ("pearson", "pearson_logit", "pearson_renormalised", "spearman", "partial")


def weights_name(layer: str, seed: int, rank: int) -> str:
    """Return what the weights of a layer, seed and rank (0: none) are called in a file."""
    return f"{layer}/{seed}/{rank}"
