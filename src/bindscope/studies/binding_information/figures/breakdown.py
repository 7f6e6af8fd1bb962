"""What is decoded of each feature group and of the objects, in bits over the prior."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from safetensors.numpy import load_file

from bindscope.codes.values import NamedValues, named_groups
from bindscope.core.array_types import Doubles
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.figures.colors import BLUE, GREY
from bindscope.figures.facets import wrapped
from bindscope.figures.figure import figure, some
from bindscope.studies.binding_information.figures.parts import bar_in_box, hide_frame
from bindscope.studies.binding_information.figures.shared import (
    family_of_fit,
    marked,
    read_binding,
)
from bindscope.studies.binding_information.names import PAPERS, show_model
from bindscope.studies.binding_information.views import assumed_prior, family_order
from bindscope.tables.groups import home_of
from bindscope.tables.numbers import number
from bindscope.tables.quoted import name_order

Name = tuple[str, str, str, str]  # dataset, model, tokens, probe
Details = dict[Name, tuple[str, dict[str, Any]]]  # family, arrays
log = logging.getLogger(__name__)

# Which fit stands for a model: of this family, or else of the most expressive one.
_FAMILY = "quadratic"
_TOKENS = ("cls", "cls_mean", "mean")
_SMALLEST_BITS = 0.01  # of an axis
_NARROWEST = 0.25  # panel, of the widest


@dataclass(frozen=True)
class Breakdown:
    """Bits of one fit on the test scenes: those of each feature group, then those of the objects.

    `saved` is the loss without a representation (`prior`: of the exact prior, or of the null probe
    of a plain probe) minus the probe's. `condition` is what the chained probe reads objects given,
    `features` or `counts`; empty: they are the paper's plain probes. Single heads are not compared:
    later ones of the chain receive earlier ones as input, and the last ones follow from these.
    """

    saved: Doubles
    prior: Doubles
    condition: str


def gains(
    details: Mapping[str, npt.NDArray[Any]],
    null: Mapping[str, npt.NDArray[Any]],
    sizes: Sequence[int],
) -> Breakdown | None:
    """Subtract a fit's mean test losses from those of the prior, or of its null probe.

    `details` hold `<seed>.<target>_loss_bits`, float (heads,), and `<seed>.<target>_prior_bits`;
    seeds are averaged. `chained` is used where it was fitted (n feature heads, those of counts
    where there are some, K object heads), else `object` and `feature`. Negative where the probe
    does worse than without input; None without a thing to compare.
    """
    n_heads = sum(sizes) + prod(sizes)
    fit, prior = (_by_target(details, suffix) for suffix in ("_loss_bits", "_prior_bits"))
    nothing = _by_target(null, "_loss_bits")
    if "chained" in fit:
        least, losses = prior["chained"], fit["chained"]
        receives = "counts" if len(losses) > n_heads else "features"
    elif {"object", "feature"} <= fit.keys() & nothing.keys():
        least, losses = (np.append(x["feature"], x["object"]) for x in (nothing, fit))
        receives = ""
    else:
        return None
    without = _totals(least, sizes)
    return Breakdown(without - _totals(losses, sizes), without, receives)


def _totals(heads: Doubles, sizes: Sequence[int]) -> Doubles:
    """Add the bits of the heads of each feature group, and of the objects, which are last."""
    groups = np.split(heads[: sum(sizes)], np.cumsum(sizes)[:-1])
    return np.array([part.sum() for part in (*groups, heads[-prod(sizes) :])])


def _by_target(details: Mapping[str, npt.NDArray[Any]], suffix: str) -> dict[str, Doubles]:
    arrays: dict[str, list[Doubles]] = {}
    for name in sorted(details):
        if name.endswith(suffix):
            target = name.partition(".")[2].removesuffix(suffix)
            arrays.setdefault(target, []).append(np.asarray(details[name], np.float64))
    return {target: np.mean(losses, axis=0) for target, losses in arrays.items()}


def _read(inputs: Inputs) -> dict[str, Any]:
    """Read what the fits of last layers gained over knowing the prior alone.

    One fit stands for a model (`choose_fits`); of spaces that differ the largest is shown.
    """
    spaces = {name: named_groups(groups) for name, groups in inputs.content["groups"].items()}
    fits, nulls = (_details(inputs.get(role)) for role in ("fits", "nulls"))
    binding = read_binding(inputs)
    estimated = assumed_prior(binding["table"])
    families = {name: family for name, (family, _) in fits.items()}
    home = home_of(inputs.content["model_groups"])
    chosen = choose_fits(families, inputs.content["models"], home)
    datasets = list(dict.fromkeys(dataset for dataset, *_ in chosen if dataset in spaces))
    largest = max((spaces[name] for name in datasets), key=_n_objects, default=[])
    breakdowns = {}
    for dataset, model, tokens, probe in chosen:
        if dataset not in spaces:
            continue
        if spaces[dataset] != largest:
            log.info("%s on %s is left out, its feature groups differ", model, dataset)
            continue
        shown_model = show_model(model, model in inputs.content["positive_controls"])
        label = f"{shown_model} ({dataset})" if len(datasets) > 1 else shown_model
        _, details = fits[dataset, model, tokens, probe]
        _, null = nulls.get((dataset, "", "", probe), ("", {}))
        sizes = [len(values) for _, values in largest]
        if gained := gains(details, null, sizes):
            breakdowns[marked(label, dataset in estimated)] = gained
    return {"breakdowns": breakdowns, "groups": largest}


def choose_fits(
    families: Mapping[Name, str], models: Sequence[str], home: Mapping[str, str]
) -> list[Name]:
    """Choose one fit per dataset and model or group: quadratic on [CLS], or what comes nearest.

    Families are by fit, `models` in the configuration's order (the first of a group stands for it),
    and `home` has the group's name of a model that is in one.
    """
    order = name_order((name[1] for name in families), models)
    preferred = [_FAMILY, *(f for f in reversed(family_order(families.values())) if f != _FAMILY)]
    ranked = sorted(
        (_TOKENS.index(name[2]), preferred.index(family), order.index(name[1]), name)
        for name, family in families.items()
        if name[2] in _TOKENS and not family.endswith(PAPERS)
    )
    best: dict[tuple[str, str], Name] = {}
    for *_, name in ranked:
        best.setdefault((name[0], home.get(name[1], name[1])), name)
    return sorted(best.values(), key=lambda name: (name[0], order.index(name[1])))


def _details(products: Sequence[ProductFiles]) -> Details:
    """Read losses per head, of all seeds, by the fit's names; a null probe has no model."""
    details: Details = {}
    for fit in products:
        dataset, model, tokens, probe = (
            fit.names.get(name, "") for name in ("dataset", "model", "tokens", "probe")
        )
        name = (dataset, model, tokens, probe)
        _, arrays = details.setdefault(name, (family_of_fit(fit), {}))
        arrays |= load_file(fit.files["details"])
    return details


def _n_objects(groups: Sequence[NamedValues]) -> int:
    return prod(len(values) for _, values in groups)


@figure(_read)
def breakdown(breakdowns: Mapping[str, Breakdown], groups: Sequence[NamedValues]) -> Figure:
    """Draw bits saved in boxes, which are the prior's: a row per label, a panel per part."""
    some(breakdowns, "No fit of the chain, or with a null probe beside it, was given.")
    conditions = dict.fromkeys(b.condition for b in breakdowns.values())
    objects = " or ".join(f"objects given {words}" if words else "objects" for words in conditions)
    names = [*(name for name, _ in groups), objects]
    widest = np.max([b.prior for b in breakdowns.values()], axis=0)
    ratios = np.maximum(widest, max(_NARROWEST * widest.max(), _SMALLEST_BITS))
    grid = wrapped(
        names,
        len(names),
        (0.6, 0.25 * len(breakdowns)),
        sharey=True,
        gridspec_kw={"width_ratios": ratios},
    )
    for part, axes in enumerate(grid.panels.values()):
        color = GREY if part < len(groups) else BLUE
        for y, b in enumerate(breakdowns.values()):
            saved, prior = b.saved[part], b.prior[part]
            words, name = number(saved), names[part]
            bar_in_box(axes, y, 0, prior, max(saved, 0.0), words, name=name, color=color)
        axes.set_title(f"{names[part]}\n{number(widest[part])} bits", fontsize=8, color=color)
        axes.set_xlim(0, max(1.005 * widest[part], _SMALLEST_BITS))
        hide_frame(axes)
    grid.left[0].set_yticks(range(len(breakdowns)), list(breakdowns))
    grid.left[0].set_ylim(len(breakdowns) - 0.5, -0.5)
    return grid.figure
