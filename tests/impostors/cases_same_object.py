"""Planted cases of the study's claims about probes: tokens that bind, and tokens that seem to.

Each seed draws images, tokens and noise anew, fits the probes as a run does, and forms the effects
by `claims.probe_effects`. Sizes are small: 16 patches an image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from cases import Case
from cases_same_object_edits import EDIT_CASES
from planted_patches import Planted, planted_tokens
from pydantic import TypeAdapter

from bindscope.fitting.generators import rng
from bindscope.fitting.rows import ArrayRows
from bindscope.statistics.claims import Effect
from bindscope.studies.same_object.claims import (
    LAST_LAYER,
    OVER,
    WITH_POSITION,
    WITH_POSITION_OVER,
    probe_effects,
)
from bindscope.studies.same_object.config import AnyScorer
from bindscope.studies.same_object.data import PairData
from bindscope.studies.same_object.estimates import add_leads
from bindscope.studies.same_object.fit import fit_probe
from bindscope.studies.same_object.known import GRID, labels
from bindscope.studies.same_object.quantities import NO_MODEL
from bindscope.studies.same_object.views import quote

IMAGES = {"train": 50, "val": 30, "test": 50}
LAYOUTS = 32  # what a generator is for
SAMPLES = 300  # resamples of the test images
N_LAYERS = 2
# Fits end before their last step: a claim over a rival whose fit has not is not testable.
_CONVEX = {"l2": (0.1, 0.01), "steps": 60}
_PROBES: Mapping[str, Mapping[str, Any]] = {
    "quadratic": _CONVEX,
    "linear": _CONVEX,
    "diagonal": _CONVEX,
    "quadratic_position": _CONVEX,
    "class_pointwise": _CONVEX,
    "class_position": {**_CONVEX, "iterations": 8},
    "identity_pointwise": {"steps": 600, "queries": 6, "learning_rate": 1e-2},
    "position": {"steps": 60},
}


def splits(planted: Planted, seed: int, *, uneven: bool = False) -> list[PairData]:
    """Draw train, validation and test with planted tokens."""
    drawn, layouts = [], None
    few = _layouts(planted.n_layouts, seed, uneven)
    for i, n in enumerate(IMAGES.values()):
        sample = labels(n, seed, i, uneven=uneven)
        if planted.n_layouts:
            layouts = rng(seed, LAYOUTS, i).integers(0, planted.n_layouts, n)
            sample = {name: values[layouts] for name, values in few.items()}
        data = PairData.from_arrays(sample, None, GRID)
        tokens = planted_tokens(
            data.instances, data.classes, data.positions, GRID, planted, i << 24, layouts
        )
        drawn.append(replace(data, tokens=ArrayRows(tokens)))
    return drawn


def _layouts(n: int, seed: int, uneven: bool) -> dict[str, npt.NDArray[np.int16]]:
    """Draw layouts of objects of two classes at least."""
    drawn = labels(10 * n, seed, len(IMAGES), uneven=uneven)
    several = np.array([len(np.unique(of_image)) > 1 for of_image in drawn["classes"]], bool)
    return {name: values[several][:n] for name, values in drawn.items()}


def effects(
    seed: int,
    layers: Sequence[Mapping[str, Any]],
    families: Sequence[str],
    *,
    uneven: bool = False,
) -> Iterable[Effect]:
    """Fit probes to planted tokens and return the effects of all claims.

    `layers`: what the tokens of each layer hold (`Planted`); one, or one for each of the layers.
    `families`: probes; `position` reads no tokens. `uneven`: as in `labels`.
    """
    fits = []
    for i, parts in enumerate(layers):
        data = splits(Planted(**{**_BASE, **parts, "seed": seed}), seed, uneven=uneven)
        for family in families:
            if family == "position" and i:
                continue
            probe: AnyScorer = TypeAdapter(AnyScorer).validate_python(
                {"name": family.replace("_", "-"), "family": family, **_PROBES[family]}
            )
            [result] = fit_probe(probe, *data, seeds=(seed,), bootstrap_samples=2)
            reads_none = family == "position"
            names = {
                "dataset": "planted",
                "model": NO_MODEL if reads_none else "tokens",
                "layer": NO_MODEL if reads_none else str(i + 1),
                "probe": family,
                "family": family,
                "grid": "4x4",
                "n_layers": None if reads_none else N_LAYERS,
            }
            fits.append(({**result.row, **names}, result.of_images.astype(np.float64)))
    add_leads(fits, SAMPLES, seed)
    return probe_effects(quote(pd.DataFrame([row for row, _ in fits])))


_BASE: Mapping[str, Any] = {
    "dim": 24,
    "rank": 6,
    "class_dims": 4,
    "place_dims": 6,
    "image_dims": 6,
    "binding": 0.0,
    "classes": 0.0,
    "noise": 0.3,
}
_BINDING = {"binding": 1.0, "dim": 32, "nuisance": 1.5}
_CLASS, _POSITION, _IMAGE = {"classes": 1.0}, {"position": 1.0}, {"image": 1.0}
_HISTOGRAM, _OFFSET = {"histogram": 1.0}, {"offset": 30.0}  # deviations of the noise: 100
_BY_CLASS = {**_CLASS, **_POSITION, "class_position": 1.0, "class_place_dims": 8, "dim": 32}
_EVERYTHING = {**_CLASS, **_POSITION, **_IMAGE}
# A fixed camera: all images have one layout, or one of six. Tokens know it, and where they are.
_ONE_LAYOUT = {"n_layouts": 1, "cell": 1.0, "dim": 40}
_LAYOUTS = {"n_layouts": 6, "layout_cell": 1.0, "dim": 120}
_LAYOUT_AND_CELL = {"n_layouts": 6, "cell": 1.0, "layout": 1.0, "layout_dims": 6, "dim": 48}
_LAYOUT_AND_CODE = {"n_layouts": 6, **_POSITION, "layout": 1.0, "layout_dims": 6, "dim": 32}
_MAIN = ("class_position", WITH_POSITION)
_MAIN_PROBES = (WITH_POSITION, "class_pointwise", "class_position", "position")


def _claims(over: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the claims over these families; of `quadratic_position`, its own."""
    return tuple(WITH_POSITION_OVER if name == WITH_POSITION else OVER[name] for name in over)


def _run(
    over: Sequence[str], *layers: Mapping[str, Any], uneven: bool = False
) -> Callable[[int], Iterable[Effect]]:
    probes = _MAIN_PROBES if WITH_POSITION in over else ()
    families = dict.fromkeys(("quadratic", *over, *probes))
    return partial(effects, layers=layers, families=tuple(families), uneven=uneven)


def _impostor(
    name: str, parts: Mapping[str, Any], over: Sequence[str], *, uneven: bool = False
) -> Case:
    """Return a case for which claims over these families must not hold."""
    return Case(name, _run(over, parts, uneven=uneven), impostor=_claims(over))


def _genuine(name: str, parts: Mapping[str, Any], over: Sequence[str] = _MAIN) -> Case:
    return Case(name, _run(over, parts), genuine=_claims(over))


CASES: tuple[Case, ...] = (
    _impostor("class only", _CLASS, ("class_pointwise", "class_position")),
    _impostor("class only, unequal shares", _CLASS, ("class_pointwise", *_MAIN), uneven=True),
    _impostor("position only", _POSITION, _MAIN),
    _impostor("position, one layout", _ONE_LAYOUT, _MAIN),
    _impostor("position in each of six layouts", _LAYOUTS, _MAIN),
    _impostor("position and layout", _LAYOUT_AND_CELL, _MAIN),
    _impostor("smooth position and layout", _LAYOUT_AND_CODE, _MAIN),
    _impostor("class, image, position in each layout", {**_LAYOUTS, **_CLASS, **_IMAGE}, _MAIN),
    _impostor("class and position", {**_CLASS, **_POSITION}, _MAIN),
    _impostor("position within each class", _BY_CLASS, _MAIN, uneven=True),
    _impostor("image vector", _IMAGE, tuple(OVER)),
    _impostor("image class histogram", _HISTOGRAM, ("linear", "class_position")),
    _impostor("class, position and image vector", _EVERYTHING, _MAIN),
    _impostor("noise, d = 64", {"dim": 64}, ("linear", "diagonal", "class_position")),
    _impostor("noise, d = 512", {"dim": 512}, ("class_position",)),
    _impostor("common offset", _OFFSET, ("linear", "class_position")),
    _genuine("binding", _BINDING, (*OVER, WITH_POSITION)),
    _genuine("binding, class, position and image", {**_BINDING, **_EVERYTHING}),
    _genuine("binding and common offset", {**_BINDING, **_OFFSET}, ("class_position",)),
    Case("binding in the inner layer", _run((), _BINDING, {"binding": 0.2}), genuine=(LAST_LAYER,)),
    Case(
        "equal layers",
        _run((), {"binding": 0.3}, {"binding": 0.3, "rotated": False}),
        impostor=(LAST_LAYER,),
    ),
    Case("image vector in the inner layer", _run((), _IMAGE, {}), impostor=(LAST_LAYER,)),
    _impostor("binding along the axes", {**_BINDING, "rotated": False}, ("diagonal",)),
    *EDIT_CASES,
)
