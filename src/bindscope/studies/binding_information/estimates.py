"""From a fit's losses and the exact entropies to binding information: a row of the table.

Two families of estimates stand side by side (``docs/information.md``):

- the paper's (arXiv 2606.03976): ``binding_bits`` = H(O) - CE(O), a lower bound on I(O;Z), and
  ``conditional_binding_bits`` = H(O|F) - (CE(O) - CE(F)), the difference of two bounds and itself
  none;
- ours: ``*_lower_bound_bits`` from probes that start at the exact prior, all of which are lower
  bounds: of what (F), how many (the counts M given F), what goes with what (O given M), and sums
  of them.

Each part with anchors is mixed with its exact prior, so that no scene can lose much (`prior`: the
mixture is the prior alone, and the bound is 0). Some samples of test scenes are more surprising
than others, and a probe that predicts little pays for that as the prior does. The prior's loss on
each scene is known, and so is its expectation, the entropy: what the probe's loss shares with it,
as measured on validation, is subtracted (`statistics.control_variates`).

Lower ends of our bounds are lower confidence limits for every number of scenes
(`statistics.lower_limits`), for the smallest gain that a scene can have is known; other ends are
percentiles of a bootstrap. Bounds and their ends are clipped to [0, H]; losses and the paper's
estimates are not. Losses are cross-entropies on the test split in bits per scene.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bindscope.core.errors import StoreError
from bindscope.statistics.bootstrap import (
    cluster_numbers,
    cluster_sums,
    interval,
    resampled_means,
)
from bindscope.statistics.lower_limits import pessimistic_means
from bindscope.studies.binding_information.flags import (
    above_prior,
    ratios,
    status_of,
    without_collapsed,
)
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    COUNTS,
    ENTROPIES,
    EVIDENCE,
    FEATURES,
    LOSSES,
    PAIRING,
    PAPER_BEYOND,
    PAPER_WHOLE,
    QUANTITIES,
    SHARES,
    WHOLE,
    total,
)
from bindscope.tables.flags import flag_text
from bindscope.tables.quantities import Quantity
from bindscope.tables.rows import finite_or_none

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.fitting.rows import Rows
    from bindscope.studies.binding_information.config import Information
    from bindscope.studies.binding_information.probes.base import FitResult

# The bound of the anchored probe over O, which has no column of its own.
_ANCHORED = Quantity(name="anchored", value="anchored", low="anchored_low", high="anchored_high")
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
    groups: NDArray[np.integer] | None = None,
) -> dict[str, Any]:
    """Turn one seed of one fit into a table row, without the names that the caller adds.

    Parameters
    ----------
    result
        The fit.
    prior
        The row of `priors.entropies` for the test split; of an estimated prior, the largest losses
        are those of the test scenes, and no end of an interval is guaranteed.
    objects, features
        Test codes in the order of the losses, (N, K) and (N, n), as the probe was tested on them.
    config
        Resamples and their seed.
    disjoint, groups
        Whether the splits share no feature code; labels (N,) of near-duplicates: what is resampled.
    nothing_to_learn
        Whether labels have nothing to do with the representation (`collapsed` is no flag).

    Returns
    -------
    The columns of the table `binding_information` that a fit decides, and `parts`, for the row of
    the best probe: flags of each part of each target, and the anchored bound over O with its
    interval. Numbers are finite or None; None comes with `reason`.
    """
    losses = scene_losses(result, objects.shape, features.shape)
    gained = part_gains(result, prior)
    losses |= {p: g.prior_losses for p, g in gained.items() if result.prior_weights[p] == 1}
    scores = losses | {f"prior_{part}": gain.prior_losses for part, gain in gained.items()}
    scores |= {f"gain_{part}": gain.gains for part, gain in gained.items()}
    means = {name: finite_or_none(float(values.mean())) for name, values in scores.items()}
    means = _within(means, gained)
    row: dict[str, Any] = {
        "seed": result.seed,
        **{name: prior.get(name) for name in ENTROPIES},
        **_losses(means, prior),
        **{
            loss.validation: finite_or_none(result.val_loss_bits.get(n))
            for n, loss in LOSSES.items()
        },
    }
    bound = lower_bound_probe(result.val_loss_bits)
    row |= {q.value: value for q, value in _estimates(means, prior, bound).items()}
    row |= ratios(row)
    clusters = cluster_numbers(features) if disjoint else groups
    row |= _intervals(scores, means, gained, prior, bound, clusters, config)
    row[EVIDENCE] = _evidence(result, prior, groups)
    anchored = [row.pop(name) for name in _ANCHORED.interval]
    row |= _outcome(result, row, anchored, nothing_to_learn)
    failed = [name for name, values in losses.items() if not np.isfinite(values).all()]
    return {**row, **status_of(row, prior.get("counts_reason"), failed)}


def _outcome(
    result: FitResult, row: Mapping[str, Any], anchored: list[Any], nothing_to_learn: bool
) -> dict[str, Any]:
    """Return accuracies, steps and flags, and `parts`; see `estimate`."""
    flags = without_collapsed(result.target_flags) if nothing_to_learn else result.target_flags
    return {
        **{share.value: finite_or_none(result.shares[share.name]) for share in SHARES},
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


def lower_bound_probe(val_loss_bits: Mapping[str, float]) -> str | None:
    """Choose between the bounds on I(O;Z) by validation loss: `chained`, or another target.

    The anchored probe over O and the chained one (whose parts add up) both model O, so the one that
    is best on validation may be reported on test without looking at test. The plain probe, whose
    loss has no limit, is taken where neither was fitted.
    """
    finite = {name: loss for name, loss in val_loss_bits.items() if np.isfinite(loss)}
    ours = [name for name in ("object_anchored", "chained") if name in finite]
    return min(ours, key=finite.__getitem__, default="object" if "object" in finite else None)


class PartGains(NamedTuple):
    """What knowing Z saves in a part of a target, in bits.

    Of each test scene (N,), `prior_losses` are what the prior alone pays and `gains` what is saved,
    `worst` the smallest that any scene can save; `entropy` is the most on average.
    """

    prior_losses: NDArray[np.float64]
    gains: NDArray[np.float64]
    worst: float
    entropy: float


def part_gains(result: FitResult, prior: Mapping[str, Any]) -> dict[str, PartGains]:
    """Return the gains of each part with anchors that was fitted.

    Where the prior is not exact, its loss is the entropy, which is an estimate.
    """
    counted = "chained_counts" in result.losses
    quantities = {
        "object_anchored": WHOLE,
        "chained_feature": FEATURES,
        "chained_counts": COUNTS,
        "chained_object": PAIRING if counted else BEYOND,
    }
    return {
        part: _gains(result, part, quantity, prior)
        for part, quantity in quantities.items()
        if part in result.losses
    }


def _gains(result: FitResult, part: str, quantity: Quantity, prior: Mapping[str, Any]) -> PartGains:
    losses, entropy = result.losses[part], float(prior[quantity.entropy])
    gap = float(prior["split_gap_bits"]) if quantity in (WHOLE, FEATURES) else 0.0
    prior_losses = result.anchor_losses[part] - gap
    if prior["method"] == "exact":
        largest, coefficient = (
            prior[f"largest_{quantity.prior_loss}"],
            result.control_coefficients[part],
        )
    else:
        largest, coefficient = prior_losses.max(), 0.0
        prior_losses = np.full_like(losses, entropy)
    weight = result.prior_weights[part]
    if weight == 1:
        return PartGains(prior_losses, np.zeros_like(losses), 0.0, entropy)
    gains = entropy - losses + coefficient * (prior_losses - entropy)
    worst = float(np.log2(weight) - gap - (1 - coefficient) * (largest - entropy))
    return PartGains(prior_losses, gains, worst, entropy)


def _within(values: Means, gained: Mapping[str, PartGains]) -> dict[str, Any]:
    """Clip gains between nothing and all there is to find."""
    limits = {f"gain_{part}": gain.entropy for part, gain in gained.items()}
    return {
        name: _clipped(value, limits[name]) if name in limits else value
        for name, value in values.items()
    }


def _evidence(
    result: FitResult, prior: Mapping[str, Any], groups: NDArray[np.integer] | None
) -> float | None:
    """Return the log of the e-value against no pairing information, in bits.

    Given the counts, and without information, the mean of the mixture's probability over the
    prior's is 1 in every scene. Near-duplicates, of one of `groups`, count as one scene.
    """
    if prior["method"] != "exact" or prior.get(PAIRING.entropy) is None:
        return None
    if "chained_object" not in result.losses:
        return None
    gains = result.anchor_losses["chained_object"] - result.losses["chained_object"]
    sums, sizes = cluster_sums(gains[:, None], groups)
    return float((sums[:, 0] / sizes).sum())


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

    Where counts are not separated the first two are None; counts that follow from F have no bits.
    """
    last = means.get(f"{start}chained_object")
    if prior.get(COUNTS.entropy) is None or last is None:
        return None, None, last
    counts = means.get(f"{start}chained_counts", 0.0 * last)
    return counts, last, total((counts, last))


def _estimates(means: Means, prior: Mapping[str, Any], bound: str | None) -> dict[Quantity, Any]:
    """Apply the definitions to means, or to resampled means; None where something is missing.

    Bounds are between nothing and all there is to find.
    """
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
    bounds = {
        FEATURES: what,
        COUNTS: counts,
        PAIRING: pairing,
        BEYOND: conditional,
        WHOLE: None if bound is None else whole[bound],
    }
    return {
        PAPER_WHOLE: paper,
        PAPER_BEYOND: None if difference is None else prior[BEYOND.entropy] - difference,
        **{q: _clipped(bounds[q], prior.get(q.entropy)) for q in QUANTITIES},
        _ANCHORED: _clipped(whole["object_anchored"], prior[WHOLE.entropy]),
    }


def _clipped(bound: Any, entropy: float | None) -> Any:
    return None if bound is None or entropy is None else np.clip(bound, 0.0, entropy)


def _intervals(
    scores: Mapping[str, NDArray[np.float64]],
    means: Means,
    gained: Mapping[str, PartGains],
    prior: Mapping[str, Any],
    bound: str | None,
    clusters: NDArray[np.integer] | None,
    config: Information,
) -> dict[str, float | None]:
    """95 % intervals of the estimates for this fitted probe."""
    finite = [name for name, mean in means.items() if mean is not None]
    resampled: dict[str, Any] = dict.fromkeys(means)
    draws = (config.bootstrap_samples, config.bootstrap_seed, clusters)
    if finite:
        table = resampled_means(np.column_stack([scores[name] for name in finite]), *draws)
        resampled |= dict(zip(finite, table.T, strict=True))
    pessimistic = dict(resampled)
    if gained:
        columns = np.column_stack([gain.gains for gain in gained.values()])
        table = pessimistic_means(columns, [gain.worst for gain in gained.values()], *draws)
        pessimistic |= {
            f"gain_{part}": samples for part, samples in zip(gained, table.T, strict=True)
        }
    lows = _estimates(pessimistic, prior, bound)
    intervals: dict[str, float | None] = {}
    for quantity, samples in _estimates(_within(resampled, gained), prior, bound).items():
        missing = samples is None
        intervals[quantity.low] = None if missing else interval(lows[quantity])[0]
        intervals[quantity.high] = None if missing else interval(samples)[1]
    return intervals
