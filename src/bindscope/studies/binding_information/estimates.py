"""From a fit's losses and the exact entropies to binding information: a row of the table.

Two families of estimates stand side by side (``docs/information.md``):

- the paper's (arXiv 2606.03976): ``binding_bits`` = H(O) - CE(O), a lower bound on I(O;Z), and
  ``conditional_binding_bits`` = H(O|F) - (CE(O) - CE(F)), the difference of two bounds and itself
  none;
- ours: ``*_lower_bound_bits`` from probes that start at the exact prior, all of which are lower
  bounds: of what (F), how many (the counts M given F), what goes with what (O given M), and sums
  of them.

Some samples of test scenes are more surprising than others, and a probe that knows little pays for
that as the exact prior does. The prior's loss on each scene is known, and so is its expectation,
the entropy: what the probe's loss shares with it is taken off (`statistics.control_variates`). A
bound is the entropy minus what is left: of a probe that is no better than the prior it is 0, and of
one without a loss the whole entropy, whatever the sample. (Spec 1, section 9, holds every probe
fully against the prior; of one without a loss that exceeds the entropy in half of all samples.)

Every family contains the prior: a part that does not beat it on validation is the prior (flag
`prior`), and its bound is 0. Nothing else is clipped. Losses are cross-entropies on the test split
in bits per scene.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bindscope.core.errors import StoreError
from bindscope.statistics.bootstrap import cluster_numbers, interval, resampled_means
from bindscope.statistics.control_variates import controlled
from bindscope.studies.binding_information.flags import (
    above_prior,
    flag_text,
    ratios,
    status_of,
    without_collapsed,
)
from bindscope.studies.binding_information.probes.base import PRIOR
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    COUNTS,
    ENTROPIES,
    FEATURES,
    LOSSES,
    PAIRING,
    PAPER_BEYOND,
    PAPER_WHOLE,
    SHARES,
    WHOLE,
    total,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.fitting.rows import Rows
    from bindscope.studies.binding_information.config import Information
    from bindscope.studies.binding_information.probes.base import FitResult

# Numbers, or resampled numbers (B,): None where not finite, and absent where not fitted.
Means = Mapping[str, Any]


def estimate(
    result: FitResult,
    prior: Mapping[str, Any],
    objects: NDArray[np.integer] | Rows,
    features: NDArray[np.integer],
    config: Information,
    *,
    disjoint: bool = False,
    nothing_to_learn: bool = False,
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
    nothing_to_learn
        Whether labels have nothing to do with the representation (`collapsed` is then no flag).

    Returns
    -------
    The columns of the table `binding_information` that a fit decides, and `parts`, from which the
    table makes the row of the best probe: flags of each part of each target, and the anchored bound
    over O with the ends of its interval. Numbers are finite or None; None comes with `reason`.
    """
    losses = scene_losses(result, objects.shape, features.shape)
    saved = gains(losses, result.anchor_losses, prior, priors_of(result))
    losses |= {part: saved[f"prior_{part}"] for part in priors_of(result)}
    scores = {**losses, **saved}
    means = {name: _finite(float(values.mean())) for name, values in scores.items()}
    row: dict[str, Any] = {
        "seed": result.seed,
        **{name: prior.get(name) for name in ENTROPIES},
        **_losses(means, prior),
        **{loss.validation: _finite(result.val_loss_bits.get(n)) for n, loss in LOSSES.items()},
    }
    bound = lower_bound_probe(result.val_loss_bits)
    row |= _estimates(means, prior, bound)
    row |= ratios(row)
    clusters = cluster_numbers(features) if disjoint else None
    row |= _intervals(scores, means, prior, bound, clusters, config)
    anchored = [row.pop(f"anchored{end}") for end in ("", "_low", "_high")]
    row |= _outcome(result, row, anchored, nothing_to_learn)
    failed = [name for name, values in losses.items() if not np.isfinite(values).all()]
    return {**row, **status_of(row, prior.get("counts_reason"), failed)}


def _outcome(
    result: FitResult, row: Mapping[str, Any], anchored: list[Any], nothing_to_learn: bool
) -> dict[str, Any]:
    """Return accuracies, steps and flags, and `parts`; see `estimate`."""
    flags = without_collapsed(result.target_flags) if nothing_to_learn else result.target_flags
    return {
        **{share.name: _finite(share.measure(result)) for share in SHARES},
        "feature_probe": result.feature_probe,
        "steps": result.steps,
        "flags": flag_text([*chain(*flags.values()), *above_prior(row)]),
        "parts": {
            "flags": {name: list(set_flags) for name, set_flags in flags.items() if set_flags},
            "anchored": anchored,
        },
    }


def scene_losses(
    result: FitResult, objects_shape: tuple[int, ...], features_shape: tuple[int, ...]
) -> dict[str, NDArray[np.float64]]:
    """Return the losses of each probe that was fitted in bits, name in `LOSSES` -> float64 (N,).

    A fit that was tested on other scenes or heads than these codes have is a StoreError.
    """
    n, n_features = features_shape
    n_objects = objects_shape[1]
    widths = {"object": n_objects, "feature": n_features, "object_anchored": n_objects}
    columns = [(f"losses of {name}", result.losses[name], n) for name in result.losses]
    columns += [
        (f"heads of {t}", result.head_losses[t], w)
        for t, w in widths.items()
        if t in result.head_losses
    ]
    for what, values, length in columns:
        if values.shape != (length,):
            raise StoreError(
                f"fit, {what}",
                f"they are {values.shape} where ({length},) belongs to these codes",
                "fit and estimate from codes of the same dataset and split",
            )
    return {name: result.losses[name] for name in LOSSES if name in result.losses}


def priors_of(result: FitResult) -> list[str]:
    """Return the parts for which validation prefers the prior to the fit."""
    return [part for part in result.losses if PRIOR in result.target_flags.get(part, ())]


def lower_bound_probe(val_loss_bits: Mapping[str, float]) -> str | None:
    """Choose between the bounds on I(O;Z) by validation loss: `object` is plain, `chained` ours.

    The plain probe, the anchored one over O, and the chained one (whose parts add up) all model O,
    so the one that is best on validation may be reported on test without looking at test.
    """
    finite = {
        name: val_loss_bits[name]
        for name in ("object_anchored", "chained", "object")
        if np.isfinite(val_loss_bits.get(name, np.nan))
    }
    return min(finite, key=finite.__getitem__) if finite else None


def _expected(prior: Mapping[str, Any], counted: bool) -> dict[str, tuple[float, float]]:
    """Return of each anchored part its entropy on the split, and what the prior pays beyond it."""
    gap, last = float(prior["split_gap_bits"]), PAIRING if counted else BEYOND
    expected = {
        "object_anchored": (float(prior[WHOLE.entropy]), gap),
        "chained_feature": (float(prior[FEATURES.entropy]), gap),
        "chained_object": (float(prior[last.entropy]), 0.0),
    }
    if counted:
        expected["chained_counts"] = (float(prior[COUNTS.entropy]), 0.0)
    return expected


def gains(
    losses: Mapping[str, NDArray[np.float64]],
    anchor_losses: Mapping[str, NDArray[np.float64]],
    prior: Mapping[str, Any],
    priors: Container[str] = (),
) -> dict[str, NDArray[np.float64]]:
    """Per anchored part what knowing Z saves on each scene (`gain_...`), bits.

    And what the prior alone pays (`prior_...`); where that is not exact it is the entropy, which is
    an estimate. Losses of the probe and of its anchors are by part, float64 (N,), bits; knowing Z
    saves nothing in `priors`, parts for which the prior stands.
    """
    gains_of_parts: dict[str, NDArray[np.float64]] = {}
    for part, (entropy, gap) in _expected(prior, "chained_counts" in losses).items():
        if part in losses:
            pays = np.full_like(losses[part], entropy)
            if prior["method"] == "exact":
                pays = anchor_losses[part] - gap
            gain = entropy - controlled(losses[part], pays, entropy)
            gain = np.zeros_like(gain) if part in priors else gain
            gains_of_parts |= {f"prior_{part}": pays, f"gain_{part}": gain}
    return gains_of_parts


def _losses(means: Means, prior: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the losses of the table, and what the prior alone pays for the same scenes."""
    fitted = ("object", "feature", "object_anchored", "chained_feature")
    row: dict[str, float | None] = {LOSSES[name].test: means.get(name) for name in fitted}
    row[WHOLE.prior_loss] = means.get("prior_object_anchored")
    row[FEATURES.prior_loss] = means.get("prior_chained_feature")
    losses, pays = (_given_feature(means, prior, start) for start in ("", "prior_"))
    for quantity, loss, prior_loss in zip((COUNTS, PAIRING, BEYOND), losses, pays, strict=True):
        row |= {quantity.loss: loss, quantity.prior_loss: prior_loss}
    return row


def _given_feature(means: Means, prior: Mapping[str, Any], start: str) -> tuple[Any, Any, Any]:
    """Return what stands under `start` for M given F, O given M, and O given F.

    Where counts are not told apart the first two are None; counts that follow from F have no bits.
    """
    last = means.get(f"{start}chained_object")
    if prior.get(COUNTS.entropy) is None or last is None:
        return None, None, last
    counts = means.get(f"{start}chained_counts", 0.0 * last)
    return counts, last, total((counts, last))


def _estimates(means: Means, prior: Mapping[str, Any], bound: str | None) -> dict[str, Any]:
    """Apply the definitions to means, or to resampled means; None where something is missing."""
    plain, feature = means.get("object"), means.get("feature")
    counts, pairing, conditional = _given_feature(means, prior, "gain_")
    what = means.get("gain_chained_feature")
    paper = None if plain is None else prior[WHOLE.entropy] - plain
    whole = {
        "object": paper,
        "object_anchored": means.get("gain_object_anchored"),
        "chained": total((what, conditional)),
    }
    difference = None if plain is None or feature is None else plain - feature
    return {
        PAPER_WHOLE: paper,
        PAPER_BEYOND: None if difference is None else prior[BEYOND.entropy] - difference,
        FEATURES.bound: what,
        COUNTS.bound: counts,
        PAIRING.bound: pairing,
        BEYOND.bound: conditional,
        WHOLE.bound: None if bound is None else whole[bound],
        "anchored": whole["object_anchored"],
    }


def _intervals(
    scores: Mapping[str, NDArray[np.float64]],
    means: Means,
    prior: Mapping[str, Any],
    bound: str | None,
    clusters: NDArray[np.integer] | None,
    config: Information,
) -> dict[str, float | None]:
    """95 % percentile intervals of the estimates for this fitted probe."""
    finite = [name for name, mean in means.items() if mean is not None]
    resampled: dict[str, Any] = dict.fromkeys(means)
    if finite:
        table = resampled_means(
            np.column_stack([scores[name] for name in finite]),
            config.bootstrap_samples,
            config.bootstrap_seed,
            clusters,
        )
        resampled |= dict(zip(finite, table.T, strict=True))
    intervals: dict[str, float | None] = {}
    for name, samples in _estimates(resampled, prior, bound).items():
        ends = (None, None) if samples is None else interval(samples)
        intervals[f"{name}_low"], intervals[f"{name}_high"] = ends
    return intervals


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None
