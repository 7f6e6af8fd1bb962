"""From a fit's losses and the exact entropies to binding information: a row of the table.

Two families of estimates stand side by side (``docs/information.md``):

- the paper's (arXiv 2606.03976): ``binding_bits`` = H(O) - CE(O), a lower bound on I(O;Z), and
  ``conditional_binding_bits`` = H(O|F) - (CE(O) - CE(F)), the difference of two bounds and itself
  none;
- ours: ``*_lower_bound_bits`` from probes that start at the exact prior, of which both are lower
  bounds (spec 1, sections 1 and 6b).

Nothing is clipped. Losses are cross-entropies on the test split in bits per scene.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bindscope.core.errors import StoreError
from bindscope.statistics.bootstrap import cluster_numbers, interval, resampled_means
from bindscope.studies.binding_information.flags import above_prior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.fitting.rows import Rows
    from bindscope.studies.binding_information.config import Information
    from bindscope.studies.binding_information.probes.base import FitResult

# Columns of per-scene losses: plain O and F probes, anchored O probe, the two parts of the chained.
LOSSES = ("object", "feature", "object_anchored", "chained_feature", "chained_object")
ESTIMATES = (
    "binding_bits",
    "conditional_binding_bits",
    "binding_lower_bound_bits",
    "conditional_binding_lower_bound_bits",
)
ENTROPIES = ("h_object_bits", "h_feature_bits", "h_object_given_feature_bits", "split_gap_bits")


def estimate(
    result: FitResult,
    prior: Mapping[str, Any],
    objects: NDArray[np.integer] | Rows,
    features: NDArray[np.integer],
    config: Information,
    *,
    disjoint: bool = False,
) -> dict[str, Any]:
    """Turn one seed of one fit into a table row, without the names that the caller adds.

    Parameters
    ----------
    result
        The fit: test losses per scene and head in bits, validation losses, accuracies, flags.
    prior
        The row of `priors.entropies` for the test split.
    objects, features
        Test codes in the order of the losses, (N, K) and (N, n); only the shape of the first is
        used. Under the control `shuffled_labels`: the shuffled ones that the probe was tested on.
    config
        Resamples and their seed.
    disjoint
        Whether the splits share no feature code; then intervals are over feature codes.

    Returns
    -------
    The columns of the table `binding_information` that a fit decides. Numbers are finite or None;
    None comes with `reason` and a `status` other than "ok".
    """
    losses = scene_losses(result, objects.shape, features.shape)
    chosen = lower_bound_probe(result.val_loss_bits)
    means = {name: _finite_mean(values) for name, values in losses.items()}
    row: dict[str, Any] = {
        "seed": result.seed,
        **{name: float(prior[name]) for name in ENTROPIES},
        "loss_object_bits": means["object"],
        "loss_feature_bits": means["feature"],
        "loss_object_given_feature_bits": means["chained_object"],
        **_estimates(means, prior, chosen),
    }
    row |= _ratios(row)
    clusters = cluster_numbers(features) if disjoint else None
    row |= _intervals(losses, prior, chosen, clusters, config)
    row |= {
        "accuracy_object": _finite(result.accuracy_object),
        "exact_match_object": _finite(result.exact_match_object),
        "accuracy_feature": _finite(result.accuracy_feature),
        "feature_probe": result.feature_probe,
        "steps": result.steps,
        "flags": ";".join(sorted({*result.flags, *above_prior(means, prior)})),
    }
    return {**row, **_status(row, means)}


def scene_losses(
    result: FitResult, objects_shape: tuple[int, ...], features_shape: tuple[int, ...]
) -> dict[str, NDArray[np.float64]]:
    """Return the losses of each probe in bits, name in `LOSSES` -> float64 (N,).

    Raises
    ------
    StoreError
        If the fit was tested on other scenes or heads than these codes have.
    """
    n, n_features = features_shape
    widths = {
        "object": objects_shape[1],
        "feature": n_features,
        "object_anchored": objects_shape[1],
        "chained": n_features + objects_shape[1],
    }
    found = [(f"losses of {name}", result.losses[name], n) for name in LOSSES]
    found += [(f"heads of {t}", result.head_losses[t], width) for t, width in widths.items()]
    for what, values, length in found:
        if values.shape != (length,):
            raise StoreError(
                f"fit, {what}",
                f"they are {values.shape} where ({length},) belongs to these codes",
                "fit and estimate from codes of the same dataset and split",
            )
    return {name: result.losses[name] for name in LOSSES}


def lower_bound_probe(val_loss_bits: Mapping[str, float]) -> tuple[str, ...]:
    """Choose between the two bounds on I(O;Z) by validation loss: the losses that make it up.

    Both the anchored probe over O and the chained probe (whose parts add up) model O, so the one
    that is better on validation may be reported on test without looking at test.
    """
    anchored, chained = val_loss_bits["object_anchored"], val_loss_bits["chained"]
    if np.isfinite(anchored) and not chained < anchored:
        return ("object_anchored",)
    return ("chained_feature", "chained_object")


def _estimates(
    losses: Mapping[str, Any], prior: Mapping[str, Any], chosen: tuple[str, ...]
) -> dict[str, Any]:
    """Apply the definitions to means (numbers or None) or to resampled means (arrays)."""
    h, h_given = prior["h_object_bits"], prior["h_object_given_feature_bits"]
    terms = {
        "binding_bits": (h, ("object",), ()),
        "conditional_binding_bits": (h_given, ("object",), ("feature",)),
        "binding_lower_bound_bits": (h, chosen, ()),
        "conditional_binding_lower_bound_bits": (h_given, ("chained_object",), ()),
    }
    found: dict[str, Any] = {}
    for name, (entropy, minus, plus) in terms.items():
        if any(losses[part] is None for part in (*minus, *plus)):
            found[name] = None
        else:
            found[name] = (
                entropy - sum(losses[part] for part in minus) + sum(losses[part] for part in plus)
            )
    return found


def _ratios(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Divide the paper's estimates by what there is to know; None where that is nothing."""
    ratios: dict[str, float | None] = {}
    for name, bits, entropy in (
        ("binding_ratio", "binding_bits", "h_object_bits"),
        ("conditional_binding_ratio", "conditional_binding_bits", "h_object_given_feature_bits"),
    ):
        known = row[bits] is not None and row[entropy] > 0
        ratios[name] = row[bits] / row[entropy] if known else None
    return ratios


def _intervals(
    losses: Mapping[str, NDArray[np.float64]],
    prior: Mapping[str, Any],
    chosen: tuple[str, ...],
    clusters: NDArray[np.integer] | None,
    config: Information,
) -> dict[str, float | None]:
    """95 % percentile intervals of the four estimates for this fitted probe."""
    finite = [name for name in LOSSES if np.isfinite(losses[name]).all()]
    resampled: dict[str, Any] = dict.fromkeys(LOSSES)
    if finite:
        means = resampled_means(
            np.column_stack([losses[name] for name in finite]),
            config.bootstrap_samples,
            config.bootstrap_seed,
            clusters,
        )
        resampled |= dict(zip(finite, means.T, strict=True))
    found: dict[str, float | None] = {}
    for name, samples in _estimates(resampled, prior, chosen).items():
        ends = (None, None) if samples is None else interval(samples)
        found[f"{name}_low"], found[f"{name}_high"] = ends
    return found


def _status(row: Mapping[str, Any], means: Mapping[str, float | None]) -> dict[str, str | None]:
    """Say why numbers are missing: "failed" before "undefined" before "ok"."""
    bad = [name for name, value in means.items() if value is None]
    if bad:
        return {"status": "failed", "reason": f"test loss is not finite: {', '.join(bad)}"}
    empty = [
        f"{symbol} = 0 bits, so {ratio} has no meaning"
        for symbol, entropy, ratio in (
            ("H(O)", "h_object_bits", "binding_ratio"),
            ("H(O|F)", "h_object_given_feature_bits", "conditional_binding_ratio"),
        )
        if not row[entropy] > 0
    ]
    if empty:
        return {"status": "undefined", "reason": "; ".join(empty)}
    missing = [name for name in row if name.startswith(("accuracy", "exact")) and row[name] is None]
    if missing:
        return {"status": "failed", "reason": f"not finite: {', '.join(missing)}"}
    return {"status": "ok", "reason": None}


def _finite_mean(values: NDArray[np.float64]) -> float | None:
    return _finite(float(values.mean()))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
