"""Planted embeddings that test the study's claims: genuine cases, and impostors.

An impostor has everything of an embedding that binds but the binding: values, a vector for each
pair or scene that a probe could know by heart, noise, an offset, the order of the objects. All go
through the functions that the jobs call, on spaces of 12 to 25 objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from cases import Case

from bindscope.core.array_types import Doubles
from bindscope.fitting.generators import rng
from bindscope.statistics.claims import Effect
from bindscope.studies.concepts import claims
from bindscope.studies.concepts.alignment import alignment_rows
from bindscope.studies.concepts.approximators import approximator_rows
from bindscope.studies.concepts.decomposition import decomposition_rows
from bindscope.studies.concepts.editing import editing_rows
from bindscope.studies.concepts.planted_encoders import PlantedVectors, additive, lookup, per_object
from bindscope.studies.concepts.recognition import Embedded, queries, recognition_rows
from bindscope.studies.concepts.scenes import Scenes
from bindscope.studies.concepts.tables import CONCEPTS_SCHEMA
from bindscope.studies.concepts.views import OUTCOME
from bindscope.tables.rows import Row
from bindscope.tables.schema import frame_of

SIZES, DIM = (4, 4), 48
OF_EMBEDDINGS = tuple(claim.name for claim in (claims.READ, claims.SUMS, claims.EDITS))
NAMES = {"analysis": "known", "dataset": "pairs", "embedding": "planted", "vectors": "planted"}
Make = Callable[[Scenes, int], Doubles]


def effects(embedded: Embedded, rows: Iterable[Row]) -> list[Effect]:
    """Return what rows measure of the claims, in the table that a run has."""
    about = {**NAMES, **embedded.about()}
    return claims.effects(
        {"concepts": frame_of([{**about, **row} for row in rows], CONCEPTS_SCHEMA)}
    )


def pictures(of_each: int, sizes: tuple[int, ...] = SIZES) -> Scenes:
    """Return all ordered pairs of objects, so many pictures of each."""
    every = Scenes.all_of(sizes)
    return every.take(np.repeat(np.arange(len(every)), of_each))


def read_and_edit(
    make: Make, of_each: int, seed: int, sizes: tuple[int, ...] = SIZES
) -> list[Effect]:
    """Measure the claims about one embedding: probes, sums, edits."""
    scenes = pictures(of_each, sizes)
    embedded = Embedded(make(scenes, seed), scenes)
    kinds = {
        "recognition": recognition_rows(embedded, {}),
        "decomposition": decomposition_rows(embedded, [claims.ESTIMATOR]),
        "editing": editing_rows(embedded, [claims.ESTIMATOR], [1.0]),
    }
    rows = ({"analysis_kind": kind, **row} for kind, some in kinds.items() for row in some)
    return effects(embedded, rows)


# --- Embeddings ---------------------------------------------------------------------------------


def values(scenes: Scenes, seed: int, dim: int = DIM, slot_effect: float = 0.3) -> Doubles:
    """Values, with vectors that hardly depend on the slot."""
    return additive(scenes, PlantedVectors(dim, seed, slot_effect))


def objects(scenes: Scenes, seed: int, dim: int = DIM) -> Doubles:
    """Values, and a vector of its own for each object: binding that follows from no rule."""
    return lookup(scenes, PlantedVectors(dim, seed, 0.3))


def products(scenes: Scenes, seed: int, dim: int = DIM) -> Doubles:
    """Products of values' vectors: binding that follows a rule."""
    return per_object(scenes, PlantedVectors(dim, seed, 0.3))


def histogram(scenes: Scenes, seed: int) -> Doubles:
    """How often each value occurs, and nothing else: a bag of concepts."""
    counts = [
        (scenes.values[:, :, k, None] == np.arange(size)).sum(1)
        for k, size in enumerate(scenes.sizes)
    ]
    return np.concatenate(counts, axis=1).astype(np.float64)


def order(scenes: Scenes, seed: int) -> Doubles:
    """Values, and a vector for which object comes first."""
    first = (scenes.slots[:, 0] < scenes.slots[:, 1]).astype(np.int64)
    return values(scenes, seed) + drawn(first, DIM, seed)


def by_group(scenes: Scenes, seed: int, *, groups: str, dim: int = DIM) -> Doubles:
    """Values, and a random vector per unordered pair, ordered pair or scene."""
    numbers = {
        "pair": scenes.unordered,
        "ordered": scenes.keys(scenes.slots),
        "scene": np.arange(len(scenes)),
    }
    return values(scenes, seed, dim) + 2 * drawn(numbers[groups], dim, seed)


def drawn(groups: Any, dim: int, seed: int) -> Doubles:
    """Return a random vector for each group, (n, dim)."""
    _, place = np.unique(groups, return_inverse=True)
    return np.asarray(rng(seed, 31).standard_normal((place.max() + 1, dim))[place])


def far(scenes: Scenes, seed: int, *, of: Make) -> Doubles:
    """An embedding far from the origin: an offset of 100 standard deviations."""
    z = of(scenes, seed)
    return np.asarray(z + 100 * z.std() * rng(seed, 32).standard_normal(z.shape[1]))


# --- Two modalities -----------------------------------------------------------------------------

Modalities = Callable[[Scenes, int], tuple[Doubles, Doubles, Doubles]]


def across(make: Modalities, seed: int) -> list[Effect]:
    """Measure the claims about images and captions: queries, and one map between them.

    `make` returns images and captions of scenes, and captions of each object alone.
    """
    scenes = Scenes.all_of(SIZES)
    images, captions, alone = make(scenes, seed)
    of_values = [np.zeros((size, alone.shape[1])) for size in scenes.sizes]
    text_queries = queries(of_values, alone, np.arange(scenes.n_objects))
    embedded = Embedded(images, scenes, text_queries)
    kinds = {
        "recognition": recognition_rows(embedded, {"captions": text_queries}),
        "alignment": alignment_rows(embedded, captions),
    }
    rows = [{"analysis_kind": kind, **row} for kind, some in kinds.items() for row in some]
    return effects(embedded, (row for row in rows if row["variant"] != "probes"))


def both(scenes: Scenes, seed: int, *, of: Make, shift: float = 0, unrelated: bool = False) -> Any:
    """Images and captions by one encoder (or two, `unrelated`) with noise of their own."""
    n = scenes.n_objects
    alone = Scenes(np.tile(np.arange(n)[:, None], (1, scenes.n_slots)), scenes.sizes)
    together = Scenes(np.concatenate([scenes.slots, alone.slots]), scenes.sizes)
    caption = of(together, seed)
    image = of(together, seed + 1000) if unrelated else caption
    noise = 0.2 * rng(seed, 33).standard_normal((2, len(scenes), caption.shape[1]))
    offset = shift * caption.std() * rng(seed, 34).standard_normal(caption.shape[1])
    return image[:-n] + noise[0] + offset, caption[:-n] + noise[1], caption[-n:]


def arbitrary(scenes: Scenes, seed: int) -> Doubles:
    """A vector for each object that has nothing of its values."""
    return np.asarray(drawn(np.arange(scenes.n_objects), DIM, seed)[scenes.slots].sum(1))


# --- Rules --------------------------------------------------------------------------------------


def predicted(make: Make, scenes: Scenes, splits: int, seed: int) -> list[Effect]:
    """Measure the claim about approximators: sums, and products within objects."""
    embedded = Embedded(make(scenes, seed).astype(np.float32), scenes)
    rows = (
        {"analysis_kind": "approximators", "variant": kind, **row}
        for kind in ("additive", "per_object")
        for row in approximator_rows(
            embedded,
            {"kind": kind, "starts": 1},
            [0.6],
            range(seed, seed + splits),
            validation_share=0.0,
        )
    )
    return effects(embedded, rows)


def _cases_of_embeddings() -> Iterator[Case]:
    genuine: dict[str, Make] = {"objects": objects, "products": products}
    genuine["objects, far from 0"] = partial(far, of=objects)
    for name, make in genuine.items():
        yield Case(name, partial(read_and_edit, make, 1), genuine=OF_EMBEDDINGS)
    yield Case("objects, 3 pictures", partial(read_and_edit, objects, 3), genuine=OF_EMBEDDINGS)
    impostors: dict[str, tuple[Make, int]] = {
        "values": (values, 1),
        "values, far from 0": (partial(far, of=values), 1),
        "values by slot": (partial(values, slot_effect=2.0), 1),
        "histogram": (histogram, 1),
        "order of the objects": (order, 1),
        "a vector per pair": (partial(by_group, groups="pair"), 1),
        "a vector per pair, 3 pictures": (partial(by_group, groups="pair"), 3),
        "a vector per ordered pair": (partial(by_group, groups="ordered"), 1),
        "noise, 64 dimensions": (partial(by_group, groups="scene", dim=64), 1),
    }
    for name, (make, of_each) in impostors.items():
        yield Case(name, partial(read_and_edit, make, of_each), impostor=OF_EMBEDDINGS)
    for dim in (512, 768):  # of few scenes
        noise = partial(by_group, groups="scene", dim=dim)
        measure = partial(read_and_edit, noise, 1, sizes=(4, 3))
        yield Case(f"noise, {dim} dimensions", measure, impostor=OF_EMBEDDINGS)


def _cases_across() -> Iterator[Case]:
    queried, mapped = claims.ACROSS.name, claims.ALIGNED.name
    some: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
        "captions of objects": ({"of": objects}, (queried, mapped), ()),
        "captions of products": ({"of": products}, (queried, mapped), ()),
        "captions, images far from 0": ({"of": objects, "shift": 100}, (mapped,), ()),
        "captions of values": ({"of": values}, (), (queried,)),
        "captions that are histograms": ({"of": histogram}, (), (queried,)),
        "captions, a vector per pair": ({"of": partial(by_group, groups="pair")}, (), (queried,)),
        "captions, noise": ({"of": partial(by_group, groups="scene")}, (), (queried,)),
        "unrelated captions": ({"of": arbitrary, "unrelated": True}, (), (queried, mapped)),
        "unrelated captions, images far from 0": (
            {"of": arbitrary, "unrelated": True, "shift": 100},
            (),
            (queried, mapped),
        ),
    }
    for name, (how, genuine, impostor) in some.items():
        yield Case(name, partial(across, partial(both, **how)), genuine, impostor)


def _cases_of_rules() -> Iterator[Case]:
    name = (claims.RULE.name,)
    # Where the first value always names the slot, a sum of values by slot holds what goes with it.
    in_order = Scenes.all_of((2, 4, 4))
    in_order = in_order.take((in_order.values[:, :, 0] == (0, 1)).all(axis=1))
    rule = partial(values, slot_effect=2.0)
    yield Case("a rule of slots, in one order", partial(predicted, rule, in_order, 4), genuine=name)
    every = Scenes.all_of((5, 5))
    every = every.take(np.sort(rng(0, 36).permutation(len(every))[:400]))
    impostors: dict[str, Make] = {
        "a rule of values by slot": partial(values, dim=24, slot_effect=2.0),
        "objects without a rule": partial(objects, dim=24),
        "no rule, a vector per pair": partial(by_group, groups="pair", dim=24),
    }
    for case, make in impostors.items():
        yield Case(case, partial(predicted, make, every, 1), impostor=name)


# --- Correlations over encoders -----------------------------------------------------------------


def correlated(made_of: Collection[str], seed: int) -> list[Effect]:
    """Measure the claim about correlations: of a measure that some properties make up."""
    draw = rng(seed, 35)
    kinds = [f"e{i}" for i in range(4)]
    rows = pd.MultiIndex.from_product(
        [kinds, ["train_only", "all"], [0.2, 0.5, 0.8, 0.9], [0, 1]],
        names=["encoder", "query_pool", "coverage", "seed"],
    ).to_frame(index=False)
    groups = rows.groupby(["encoder", "query_pool", "coverage"]).ngroup().to_numpy()
    parts = {
        "coverage": rows["coverage"].to_numpy(),
        "kind": draw.random(4)[rows["encoder"].str[1:].astype(int)],
        "pool": rows["query_pool"].eq("all").to_numpy() * 0.5,
        "rest": draw.standard_normal(groups.max() + 1)[groups] / 4,
    }
    outcome = sum(parts.values()) + draw.standard_normal(len(rows)) / 10
    measure = sum((part for name, part in parts.items() if name in made_of), np.zeros(len(rows)))
    measure = measure + draw.standard_normal(len(rows)) / 10  # what nothing else goes with
    columns = {"rule_accuracy": measure, "held_out_concept_accuracy": measure, OUTCOME: outcome}
    names = {"space": "8x8", "analysis": "known", "approximator": "rule"}
    return list(claims.follows(rows.assign(**names, **columns)))


def _cases_of_correlations() -> Iterator[Case]:
    name, every = (claims.FOLLOWS.name,), ("coverage", "kind", "pool", "rest")
    yield Case("a measure of naming", partial(correlated, every), genuine=name)
    impostors = {
        "a measure of coverage": ["coverage"],
        "a measure of the kind": ["kind"],
        "a measure of the query pool": ["pool"],
        "a measure of coverage and kind": ["coverage", "kind", "pool"],
        "a measure of nothing": [],
    }
    for case, parts in impostors.items():
        yield Case(case, partial(correlated, parts), impostor=name)


CASES = (
    *_cases_of_embeddings(),
    *_cases_across(),
    *_cases_of_rules(),
    *_cases_of_correlations(),
)
