"""Which objects and which features are known, in bits over the prior."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from safetensors.numpy import load_file

from bindscope.codes.values import NamedValues, named_groups
from bindscope.core.array_types import Doubles
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.figures.colors import BLUE, ORANGE, WIDTH_IN
from bindscope.figures.facets import heat_map
from bindscope.figures.figure import figure, some
from bindscope.figures.style import new_figure, values_along_x, zero_line
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

COLUMNS = 3
# Which fit stands for a model: of this family, or else of the most expressive one.
_FAMILY = "quadratic"
_TOKENS = ("cls", "cls_mean", "mean")
_WRITE_UP_TO = 64  # cells; more are too small for numbers
_SMALLEST_TOP_BITS = 0.01  # of the color scale, so that rounding errors have no color


@dataclass(frozen=True)
class Breakdown:
    """Bits gained over the prior by the heads of one fit: per object, and per feature.

    That is the test loss without a representation (of the exact prior, or of the null probe of a
    plain probe) minus the probe's. `condition` is what the chained probe reads objects given,
    `features` or `counts`: then the features' sum is a lower bound on I(F;Z), the objects' on B*,
    or on the pairing information. Empty: they are the paper's plain probes.
    """

    objects: Doubles
    features: Doubles
    condition: str


def gains(
    details: Mapping[str, npt.NDArray[Any]],
    null: Mapping[str, npt.NDArray[Any]],
    sizes: Sequence[int],
) -> Breakdown | None:
    """Subtract a fit's mean test losses per head from those of the prior, or of its null probe.

    `details` hold `<seed>.<target>_loss_bits`, float (heads,), and `<seed>.<target>_prior_bits`;
    seeds are averaged. `chained` is used where it was fitted (n feature heads, those of counts
    where there are some, K object heads), else `object` and `feature`. Negative where the probe
    does worse than without input; None without a thing to compare.
    """
    n, n_objects = sum(sizes), prod(sizes)
    fit, prior = (_by_target(details, suffix) for suffix in ("_loss_bits", "_prior_bits"))
    nothing = _by_target(null, "_loss_bits")
    if "chained" in fit:
        difference = prior["chained"] - fit["chained"]
        receives = "counts" if len(difference) > n + n_objects else "features"
        return Breakdown(difference[-n_objects:], difference[:n], receives)
    if {"object", "feature"} <= fit.keys() & nothing.keys():
        objects, features = (nothing[target] - fit[target] for target in ("object", "feature"))
        return Breakdown(objects, features, "")
    return None


def _by_target(details: Mapping[str, npt.NDArray[Any]], suffix: str) -> dict[str, Doubles]:
    arrays: dict[str, list[Doubles]] = {}
    for name in sorted(details):
        if name.endswith(suffix):
            target = name.partition(".")[2].removesuffix(suffix)
            arrays.setdefault(target, []).append(np.asarray(details[name], np.float64))
    return {target: np.mean(losses, axis=0) for target, losses in arrays.items()}


def _read(inputs: Inputs) -> dict[str, Any]:
    """Read what the fits of last layers gained over knowing the prior alone, head by head.

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
    """Draw bits over the prior of objects (map) and features (bars), a column per label.

    The first feature group, (name, names of the values), makes the rows of the map, all others
    together its columns.
    """
    some(breakdowns, "No fit of the chain, or with a null probe beside it, was given.")
    labels = list(breakdowns)
    blocks = [labels[i : i + COLUMNS] for i in range(0, len(labels), COLUMNS)]
    n_rows, n_features = len(groups[0][1]), sum(len(values) for _, values in groups)
    height = 1.0 + 0.27 * n_rows + 0.13 * n_features
    width = min(COLUMNS, len(labels))
    canvas = new_figure(0.3 + height * len(blocks), WIDTH_IN if width > 1 else 0.6 * WIDTH_IN)
    parts = canvas.subfigures(len(blocks), 1, squeeze=False)[:, 0]
    top = max(float(np.nanmax(np.abs(b.objects))) for b in breakdowns.values())
    top = max(top, _SMALLEST_TOP_BITS)
    reach = [float(f(b.features)) for b in breakdowns.values() for f in (np.nanmin, np.nanmax)]
    for part, block in zip(parts, blocks, strict=True):
        grid = part.subplots(
            2,
            width,
            squeeze=False,
            sharey="row",
            gridspec_kw={"height_ratios": [0.27 * n_rows + 0.3, 0.13 * n_features]},
        )
        for axes, label in zip(grid.T, block, strict=False):
            image = _objects(axes[0], breakdowns[label], groups, top)
            axes[0].set_title(label)
            _features(axes[1], breakdowns[label], groups, reach)
        for axes in grid.T[len(block) :].flat:
            axes.set_axis_off()
        _value_names(grid, groups)
        bar = part.colorbar(image, ax=list(grid[0]), pad=0.01, aspect=18)
        bar.outline.set_visible(False)
        bar.set_label("bits gained", fontsize=7.5)
    return canvas


def _objects(axes: Axes, part: Breakdown, groups: Sequence[NamedValues], top: float) -> Any:
    rows = len(groups[0][1])
    columns = prod(len(values) for _, values in groups[1:])
    cells = part.objects.reshape(rows, columns)
    shade = ScalarMappable(Normalize(-top, top), "PuOr_r")

    def write(value: float) -> tuple[str, str]:
        red, green, blue, _ = shade.to_rgba(np.array([value]))[0]
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        return number(value), "white" if dark else "#1A1A1A"

    image = heat_map(
        axes,
        cells,
        vmin=-top,
        vmax=top,
        cmap="PuOr_r",
        interpolation="nearest",
        numbers=write if cells.size <= _WRITE_UP_TO else None,
    )
    axes.set_frame_on(False)
    names = [" ".join(values) for values in product(*(values for _, values in groups[1:]))]
    axes.set_xticks(range(columns), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.tick_params(axis="x", labelsize=6.5)
    what = f"given {part.condition}" if part.condition else "and features"
    axes.set_xlabel(f"objects {what}: {_bits(part.objects)}", fontsize=8)
    return image


def _bits(parts: Doubles) -> str:
    return f"{number(parts.sum(), '.1f')} bits"


def _features(
    axes: Axes, part: Breakdown, groups: Sequence[NamedValues], reach: list[float]
) -> None:
    starts = np.cumsum([0, *(len(values) for _, values in groups)])
    for g, (start, stop) in enumerate(pairwise(starts)):
        y = np.arange(start, stop) + 0.6 * g
        axes.barh(y, part.features[start:stop], 0.8, color=(BLUE, ORANGE)[g % 2], linewidth=0)
    zero_line(axes, vertical=True)
    values_along_x(axes)
    axes.set_xlim(min(0.0, min(reach)) * 1.05, max(0.01, max(reach)) * 1.05)
    axes.set_xlabel(f"features: {_bits(part.features)}", fontsize=8)


def _value_names(grid: npt.NDArray[Any], groups: Sequence[NamedValues]) -> None:
    grid[0, 0].set_yticks(range(len(groups[0][1])), list(groups[0][1]))
    grid[0, 0].set_ylabel(groups[0][0])
    group_of = [g for g, (_, values) in enumerate(groups) for _ in values]
    places = [i + 0.6 * g for i, g in enumerate(group_of)]
    names = [name for _, values in groups for name in values]
    grid[1, 0].set_yticks(places, names)
    grid[1, 0].tick_params(axis="y", labelsize=6.5, length=0)
    grid[1, 0].set_ylim(places[-1] + 0.7, -0.7)
