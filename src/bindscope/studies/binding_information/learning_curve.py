"""How much of a bound is a matter of training scenes: the same fit on ever more of them.

Every quantity is estimated as in `estimates`, on the same test scenes, by probes fitted to the
first scenes of the train split. The *asymptote* of y(n) = a - b n^-c estimates what the family
would find with scenes without end. It is no bound, and null where the points do not show an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bindscope.core.array_types import Array
from bindscope.fitting.checkpoint import Checkpoints
from bindscope.fitting.rows import FirstRows, as_rows, whole
from bindscope.statistics.bootstrap import cluster_numbers, interval, resampled_means
from bindscope.statistics.extrapolation import FEWEST_POINTS, fit_power_laws
from bindscope.statistics.lower_limits import pessimistic_means
from bindscope.studies.binding_information.estimates import PartGains, part_gains
from bindscope.studies.binding_information.fit import run_fit
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.quantities import (
    BEYOND,
    CHAIN,
    COUNTS,
    FEATURES,
    PAIRING,
    WHOLE,
)
from bindscope.tables.flags import flag_text
from bindscope.tables.quantities import Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bindscope.fitting.rows import Rows
    from bindscope.studies.binding_information.config import AnyProbe, Information
    from bindscope.studies.binding_information.probes.base import FitResult

# Share of the resamples that must show an end.
MOST_END = 0.9
MISFIT = 0.1  # distance of the points from the curve, as a share of what it rises
NEGLIGIBLE_BITS = 0.05


def learning_curve(
    probe: AnyProbe,
    data: ProbeData,
    seeds: Sequence[int],
    shares: Sequence[float],
    prior: Mapping[str, Any],
    config: Information,
    *,
    disjoint: bool = False,
    control: str = "none",
    checkpoints: Checkpoints | None = None,
) -> list[dict[str, Any]]:
    """Fit a probe to growing shares of the train scenes: rows of the table, without names.

    `shuffled_labels` permutes the labels of each split first, by each seed in its own way.
    """
    if control == "shuffled_labels":
        return [
            row
            for seed in seeds
            for row in learning_curve(
                probe,
                data.shuffled_labels(seed),
                [seed],
                shares,
                prior,
                config,
                disjoint=disjoint,
                checkpoints=checkpoints,
            )
        ]
    scenes = stages(data.train.n_scenes, shares)
    fits = [run_fit(probe, with_first(data, n), seeds, "none", checkpoints) for n in scenes]
    return [
        row
        for results in zip(*fits, strict=True)  # those of one seed
        for row in curve_rows(results, scenes, data, prior, config, disjoint=disjoint)
    ]


def stages(n_train: int, shares: Sequence[float]) -> list[int]:
    """Return how many train scenes each share has; at least one more than the share before."""
    sizes: list[int] = []
    for share in sorted(shares):
        sizes.append(max(round(share * n_train), sizes[-1] + 1 if sizes else 1))
    return [n for n in sizes if n <= n_train]


def with_first(data: ProbeData, n: int) -> ProbeData:
    """Return the same data with the first `n` train scenes alone; nothing is read yet."""
    train = data.train

    def first(values: Array | Rows) -> FirstRows:
        return FirstRows(as_rows(values), n)

    return replace(
        data,
        train=SplitData(
            first(train.z),
            first(train.objects),
            first(train.features),
            {name: first(values) for name, values in train.anchors.items()},
            cls=None if train.cls is None else first(train.cls),
        ),
    )


def quantities(fitted: Iterable[str], prior: Mapping[str, Any]) -> dict[Quantity, tuple[str, ...]]:
    """Return what curves are made of: quantity -> parts of the chain that add up to it."""
    parts = tuple(part for part in CHAIN if part in set(fitted))
    quantities_of = {FEATURES: parts[:1]}
    if parts[1:-1]:
        quantities_of |= {COUNTS: parts[1:-1], PAIRING: parts[-1:]}
    elif prior.get(COUNTS.entropy) == 0:  # they follow from F
        quantities_of[PAIRING] = parts[-1:]
    return {**quantities_of, BEYOND: parts[1:], WHOLE: parts}


def curve_rows(
    results: Sequence[FitResult],
    scenes: Sequence[int],
    data: ProbeData,
    prior: Mapping[str, Any],
    config: Information,
    *,
    disjoint: bool = False,
) -> list[dict[str, Any]]:
    """Turn the fits of one seed, to so many train `scenes` each, into rows per quantity and stage.

    `data` is whole; `prior` is the row of `priors.entropies` for the test split. Where splits share
    no feature code (`disjoint`), intervals are over feature codes.
    """
    clusters = cluster_numbers(whole(data.test.features)) if disjoint else None
    gained = [part_gains(result, prior) for result in results]
    rows = []
    for quantity, parts in quantities(results[0].losses, prior).items():
        about = {
            "quantity": quantity.name,
            "entropy_bits": float(prior[quantity.entropy]),
            "prior_loss_bits": sum(float(gained[0][part].prior_losses.mean()) for part in parts),
            "n_test_scenes": data.test.n_scenes,
        }
        of_stages = [[gains[part] for part in parts] for gains in gained]
        curve = _curve(of_stages, scenes, clusters, config)
        rows += [
            {
                **about,
                "seed": result.seed,
                "n_train_scenes": n,
                "steps": result.steps,
                "share": n / data.train.n_scenes,
                "flags": _flags(result, parts),
                **point,
            }
            for result, n, point in zip(results, scenes, curve, strict=True)
        ]
    return rows


def _flags(result: FitResult, parts: Sequence[str]) -> str:
    return flag_text(flag for part in parts for flag in result.target_flags.get(part, ()))


def _curve(
    gained: Sequence[Sequence[PartGains]],
    scenes: Sequence[int],
    clusters: NDArray[np.integer] | None,
    config: Information,
) -> list[dict[str, Any]]:
    """Bounds and their asymptote from the gains in the parts of a quantity, stage by stage."""
    draws = (config.bootstrap_samples, config.bootstrap_seed, clusters)
    limits = np.array([part.entropy for part in gained[0]])
    of_parts = np.column_stack([part.gains for parts in gained for part in parts])
    each = np.vstack([of_parts.mean(axis=0), resampled_means(of_parts, *draws)])
    means, *samples = each.reshape(len(each), len(gained), -1).clip(0.0, limits).sum(axis=2)
    lows = pessimistic_means(
        np.column_stack([sum(part.gains for part in parts) for parts in gained]),
        [sum(part.worst for part in parts) for parts in gained],
        *draws,
    ).clip(0.0, limits.sum())
    end = _asymptote(means, np.array(samples), scenes, limits.sum())
    return [
        {
            "lower_bound_bits": float(means[stage]),
            "lower_bound_bits_low": interval(lows[:, stage])[0],
            "lower_bound_bits_high": interval(np.array(samples)[:, stage])[1],
            **end,
        }
        for stage in range(len(scenes))
    ]


def _asymptote(
    means: NDArray[np.float64],
    samples: NDArray[np.float64],
    scenes: Sequence[int],
    most: float,
) -> dict[str, Any]:
    """Extrapolate, or say in `reason` why that cannot be done.

    The interval is that of test scenes, the same ones at every share, widened to hold the ends of
    the curves through all points but one. `most` is what there is to find, in bits.
    """
    n = np.asarray(scenes)
    if len(n) < FEWEST_POINTS:
        return {"reason": f"an asymptote takes {FEWEST_POINTS} shares, and there are {len(n)}"}
    fitted, resampled = (
        fit_power_laws(n, curves, most, NEGLIGIBLE_BITS) for curves in (means[None], samples)
    )
    rise = means[-1] - means[0]
    if interval(samples[:, -1] - samples[:, 0])[1] < -NEGLIGIBLE_BITS:
        reason = "the bound falls with more scenes"
    elif not fitted.ends[0]:
        reason = "no end is in sight: the bound grows like a logarithm of the scenes, or faster"
    elif fitted.residual[0] > max(NEGLIGIBLE_BITS, MISFIT * rise):
        reason = f"the points lie {fitted.residual[0]:.2f} bits off the curve a - b n^-c"
    elif resampled.ends.mean() < MOST_END:
        reason = f"only {100 * resampled.ends.mean():.0f} % of the resamples show an end"
    else:
        ends = [*interval(resampled.asymptote[resampled.ends]), float(fitted.asymptote[0])]
        for left_out in range(len(n) if len(n) > FEWEST_POINTS else 0):
            rest = fit_power_laws(np.delete(n, left_out), np.delete(means, left_out)[None], most)
            ends.append(float(rest.asymptote[0]))
        return {
            "asymptote_bits": float(fitted.asymptote[0]),
            "asymptote_bits_low": min(ends),
            "asymptote_bits_high": max(ends),
            "exponent": float(fitted.exponent[0]),
        }
    return {"reason": reason}
