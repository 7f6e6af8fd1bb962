"""Planted representations: which of them the study's claims must hold for, and which not.

Pairing information is about new scenes of one distribution. So a vector per object code is genuine
where the distribution has few codes. Where it has many, no probe decodes codes that it has not
seen; and where codes repeat though the declared distribution has many, no bound is one.

Pairing that the colors of an image give away needs no binding. So no function of its color
histogram is genuine, neither where areas name shapes nor where all shapes have one area.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, Final

import numpy as np
import pandas as pd
from cases import Case
from numpy.typing import NDArray

from bindscope.config.codes import (
    Area,
    RandomSplit,
    SceneDistribution,
    ShapesRenderer,
    UniformSpace,
)
from bindscope.config.models import KnownAnswer
from bindscope.core.array_types import Bits, Singles
from bindscope.models.baselines import color_histogram
from bindscope.models.known_answer import encode
from bindscope.scenes.render import render_scenes
from bindscope.statistics.claims import Effect
from bindscope.studies.binding_information.claims import BINDS, DECODED, MORE, effects
from bindscope.studies.binding_information.measure import binding_information
from bindscope.studies.binding_information.quantities import PAIRING
from bindscope.studies.binding_information.result_view import rows_of_run
from bindscope.studies.binding_information.views import quote

PlantedRepresentation = Callable[[Bits, np.random.Generator], Singles]
Colored = Callable[[Singles, Bits, np.random.Generator], Singles]  # of the shares of colors, too

N_SCENES: Final = 400


def _space(size: int) -> UniformSpace:
    """As many objects as there are colors, and as there are shapes."""
    groups = [{"name": name, "size": size} for name in ("color", "shape")]
    numbers = {"min_objects": size, "max_objects": size}
    return UniformSpace.model_validate({"kind": "uniform", "groups": groups, **numbers})


SPACE: Final = _space(4)  # 1,820 codes
FEW_CODES: Final = _space(3)  # 84 codes: most test scenes have one that train scenes have too
PROBE: Final = {"family": "linear", "targets": ["chained"]}
OFFSET: Final = 100.0  # standard deviations
N_RELU: Final = 256


def draw_scenes(n: int, rng: np.random.Generator, space: UniformSpace = SPACE) -> Bits:
    """Draw object codes of a space, uint8 (n, K)."""
    cells = prod(group.size for group in space.groups)
    objects = np.zeros((n, cells), np.uint8)
    chosen = rng.random((n, cells)).argsort(1)[:, : space.max_objects]
    np.put_along_axis(objects, chosen, 1, axis=1)
    return objects


def render_objects(objects: Bits, area: Area) -> NDArray[np.uint8]:
    """Draw scenes of `SPACE` as flat shapes, uint8 (n, 48, 48, 3)."""
    render = ShapesRenderer(
        kind="shapes", size_px=48, object_px=20, margin_px=1, placement="grid", area=area
    )
    split = RandomSplit(rule="random")
    scenes = SceneDistribution(name="planted", space=SPACE, split=split, render=render)
    return render_scenes(scenes, "test", 0, objects)["images"]


def _one_hot(shares: Singles, objects: Bits, rng: np.random.Generator) -> Singles:
    """A unit for every share of every color that occurs."""
    return _floats(np.hstack([column[:, None] == np.unique(column) for column in shares.T]))


def _relu(shares: Singles, objects: Bits, rng: np.random.Generator) -> Singles:
    """A random hidden layer over the shares of colors."""
    z = shares[:, shares.std(0) > 0]
    z = (z - z.mean(0)) / z.std(0)
    weights = rng.normal(size=(z.shape[1], N_RELU)) / z.shape[1] ** 0.5
    return _floats(np.maximum(z @ weights + rng.normal(size=N_RELU), 0))


def _known(encoder: str, dim: int | None = None) -> PlantedRepresentation:
    """Take a known-answer encoder's representation."""

    def planted(objects: Bits, rng: np.random.Generator) -> Singles:
        options: dict[str, Any] = {} if dim is None else {"dim": dim}
        seed = int(rng.integers(2**31))
        config = KnownAnswer(name="k", source=f"known-answer:{encoder}", seed=seed, **options)
        space = FEW_CODES if objects.shape[1] == 9 else SPACE
        scenes = SceneDistribution(name="planted", space=space, split=RandomSplit(rule="random"))
        return encode(config, scenes, "test", 0, objects)["cls"]

    return planted


def _beside_noise(values: PlantedRepresentation, width: int) -> PlantedRepresentation:
    """Turn values at random in a space of `width`, and add noise of their size."""

    def planted(objects: Bits, rng: np.random.Generator) -> Singles:
        z = values(objects, rng)
        turned = (z - z.mean(0)) @ rng.normal(size=(z.shape[1], width))
        return _floats(turned / turned.std() + rng.normal(size=turned.shape))

    return planted


def _offset(values: PlantedRepresentation) -> PlantedRepresentation:
    def planted(objects: Bits, rng: np.random.Generator) -> Singles:
        z = values(objects, rng)
        return _floats(z + OFFSET * z.std() * rng.normal(size=z.shape[1]))

    return planted


def _with(values: PlantedRepresentation, *others: PlantedRepresentation) -> PlantedRepresentation:
    def planted(objects: Bits, rng: np.random.Generator) -> Singles:
        return np.hstack([values(objects, rng), *(part(objects, rng) for part in others)])

    return planted


def _of_scene(objects: Bits, rng: np.random.Generator) -> Singles:
    """A random vector per scene."""
    return _floats(rng.normal(size=(len(objects), 64)))


def _label(objects: Bits, rng: np.random.Generator) -> Singles:
    """One of ten labels at random."""
    return _floats(np.eye(10)[rng.integers(10, size=len(objects))])


def _slots(objects: Bits, rng: np.random.Generator) -> Singles:
    """Which four of nine places are taken, whatever stands there."""
    places = rng.random((len(objects), 9)).argsort(1)[:, :4]
    return _floats(np.eye(9)[places].sum(1))


def _lookup(objects: Bits, rng: np.random.Generator) -> Singles:
    """A random vector per object code, the same wherever the code comes again."""
    _, number = np.unique(objects, axis=0, return_inverse=True)
    return _floats(rng.normal(size=(number.max() + 1, 64)))[number.reshape(-1)]


def _floats(values: NDArray[Any]) -> Singles:
    return values.astype(np.float32)


def measured_rows(
    objects: Bits,
    planted: PlantedRepresentation,
    rng: np.random.Generator,
    seed: int,
    space: UniformSpace = SPACE,
    images: NDArray[np.uint8] | None = None,
) -> pd.DataFrame:
    """Return the table of `binding_information`, as that of a run."""
    result = binding_information(
        planted(objects, rng),
        objects,
        space=space,
        probes=[PROBE],
        images=images,
        random_state=seed,
        device="cpu",
    )
    return rows_of_run(result.table)


def _decoded(
    planted: PlantedRepresentation, n: int = N_SCENES, space: UniformSpace = SPACE, codes: int = 0
) -> Callable[[int], list[Effect]]:
    """Judge one representation of n scenes; of so many codes of the space, where `codes` is given.

    These come again and again then, which the declared distribution does not say.
    """

    def measured(seed: int) -> list[Effect]:
        rng = np.random.default_rng(seed)
        objects = draw_scenes(codes or n, rng, space)
        if codes:
            objects = objects[rng.integers(codes, size=n)]
        table = measured_rows(objects, planted, rng, seed, space)
        return effects(table, quote(table))

    return measured


def _beyond_colors(area: Area, code: Colored) -> Callable[[int], list[Effect]]:
    """Judge a code of the color histogram of images, and of the objects, with the images given."""

    def measured(seed: int) -> list[Effect]:
        rng = np.random.default_rng(seed)
        objects = draw_scenes(N_SCENES, rng)
        images = render_objects(objects, area)
        z = code(color_histogram(images), objects, rng)
        table = measured_rows(objects, lambda *_: z, rng, seed, images=images)
        return effects(table, quote(table))

    return measured


@cache
def _template() -> pd.DataFrame:
    """The rows of one representation that has everything, for bounds that are planted."""
    rng = np.random.default_rng(0)
    return measured_rows(draw_scenes(200, rng), _known("identity"), rng, 0)


def _planted_bound(mean: float, scale: float, rng: np.random.Generator) -> dict[str, float]:
    bound = rng.normal(mean, scale)
    return {PAIRING.value: bound, PAIRING.low: bound - 0.02, PAIRING.high: bound + 0.02}


def _groups(**groups: tuple[float, float, int]) -> Callable[[int], list[Effect]]:
    """Compare model groups whose bounds are drawn: mean, deviation and number of seeds."""

    def measured(seed: int) -> list[Effect]:
        rng = np.random.default_rng(seed)
        tables = [
            _template().assign(
                model=f"{name}-{i}", group=name, group_size=n, **_planted_bound(mean, scale, rng)
            )
            for name, (mean, scale, n) in groups.items()
            for i in range(n)
        ]
        table = pd.concat(tables, ignore_index=True)
        return effects(table, quote(table))

    return measured


_FEATURES, _HISTOGRAM = _known("features"), _known("counts")
_SUPERPOSED = _known("conjunctive", 32)
_IMPOSTORS: Final[dict[str, Callable[[int], list[Effect]]]] = {
    "features alone": _decoded(_FEATURES),
    "histogram": _decoded(_HISTOGRAM),
    "histogram, offset": _decoded(_offset(_HISTOGRAM)),
    "slots alone": _decoded(_slots),
    "histogram, noise of 64": _decoded(_beside_noise(_HISTOGRAM, 64), 150),
    "histogram, noise of 512": _decoded(_beside_noise(_HISTOGRAM, 512), 150),
    "histogram, noise of 768": _decoded(_beside_noise(_HISTOGRAM, 768), 150),
    "features, vector per scene": _decoded(_with(_FEATURES, _of_scene)),
    "features, vector per scene, few codes": _decoded(_with(_FEATURES, _of_scene), 800, FEW_CODES),
    "features, undeclared repeats": _decoded(_FEATURES, codes=40),
    "vector per code, seen once": _decoded(_lookup),
    "label at random": _decoded(_label),
}
_GENUINE: Final[dict[str, Callable[[int], list[Effect]]]] = {
    "superposed objects": _decoded(_SUPERPOSED),
    "superposed objects, noise, offset": _decoded(_offset(_beside_noise(_SUPERPOSED, 64)), 800),
    "full code, offset": _decoded(_offset(_known("identity"))),
    # Of 400 scenes, one in 17 would have a code that no train scene has.
    "vector per code, few codes": _decoded(_lookup, 800, FEW_CODES),
}
_COLORS: Final[dict[str, Colored]] = {
    "colors": lambda shares, objects, rng: shares,
    "colors, features": lambda shares, objects, rng: np.hstack([shares, _FEATURES(objects, rng)]),
    "colors, noise": lambda shares, *scenes: _beside_noise(lambda *_: shares, 64)(*scenes),
    "colors, one-hot": _one_hot,
    "colors, random layer": _relu,
}
_EQUAL: Final = {
    "groups of one mean": _groups(
        a=(1.0, 0.3, 3), b=(1.0, 0.3, 3), c=(1.0, 0.3, 3), d=(1.0, 0.3, 3)
    ),
    "one mean, unequal deviations": _groups(a=(1.0, 0.01, 3), b=(1.0, 0.5, 3)),
    "one training seed": _groups(a=(1.0, 0.3, 1), b=(1.0, 0.3, 3)),
}
CASES: Final = (
    *(Case(name, judged, impostor=(DECODED,)) for name, judged in _IMPOSTORS.items()),
    *(Case(name, judged, genuine=(DECODED,)) for name, judged in _GENUINE.items()),
    *(
        Case(f"{name}, equal areas", _beyond_colors("equal", code), impostor=(BINDS, DECODED))
        for name, code in _COLORS.items()
    ),
    *(
        Case(f"{name}, areas name shapes", _beyond_colors("released", code), impostor=(BINDS,))
        for name, code in _COLORS.items()
    ),
    Case(
        "superposed objects, colors, equal areas",
        _beyond_colors("equal", lambda shares, *scenes: np.hstack([shares, _SUPERPOSED(*scenes)])),
        genuine=(BINDS,),
    ),
    *(Case(name, judged, impostor=(MORE,)) for name, judged in _EQUAL.items()),
    Case("groups 1 bit apart", _groups(a=(1.5, 0.1, 4), b=(0.5, 0.1, 4)), genuine=(MORE,)),
)
