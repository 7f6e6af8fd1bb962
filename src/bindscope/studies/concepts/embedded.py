"""Embeddings of scenes as a job reads them: of a planted encoder, or of a model; all splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bindscope.activations.reader import Activations
from bindscope.core.errors import InputError
from bindscope.core.registries import resolve
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.marks import SplitBy
from bindscope.studies.concepts.planted import ENCODERS, Planted
from bindscope.studies.concepts.recognition import Readout, queries, unit
from bindscope.studies.concepts.registry import DUAL_RUNS
from bindscope.studies.concepts.rows import Embedded
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers, Scenes
from bindscope.studies.concepts.vectors import SingleScenes, means


def read_slots(codes: Sequence[str]) -> list[Integers]:
    """Read the objects of each split's scenes by slot, (n, m); -1 where a slot is empty.

    Parameters
    ----------
    codes
        Manifests of the codes, by split in the order of `SPLITS`.
    """
    return [open_store(path).read("slots").astype(np.int64) for path in codes]


def read_embedded(
    inputs: Mapping[str, Sequence[str]],
    vectors: str,
    sizes: Sequence[int],
    split_by: SplitBy,
    device: str = "cpu",
) -> Embedded:
    """Read an embedding of a dataset whose scenes fill their slots, all splits.

    Parameters
    ----------
    inputs
        Files by role: `codes`, `embeddings`, and of scenes of one object, where there are any,
        `single_codes`, `single_embeddings`.
    vectors
        Which these are.
    sizes, split_by
        Numbers of values, and what is on one side of a split.
    device
        Where probes are fitted.
    """
    z = read_embeddings(inputs["embeddings"][0], vectors)
    slots = np.concatenate(read_slots(inputs["codes"]))
    if n_partial := int((slots < 0).any(axis=1).sum()):
        raise InputError(
            inputs["codes"][0],
            f"{n_partial} of {len(slots)} scenes leave a slot empty",
            "leave them out of what the dataset reads, or make a dataset of each number of objects",
        )
    scenes = Scenes(slots, tuple(sizes))
    single = None
    if inputs.get("single_codes"):
        objects, places = read_alone(inputs["single_codes"])
        single = SingleScenes(
            read_embeddings(inputs["single_embeddings"][0], vectors), objects, places
        )
    return Embedded(z, scenes, single=single, split_by=split_by, device=device)


def read_alone(codes: Sequence[str]) -> tuple[Integers, Integers]:
    """Read scenes of one object, all splits: the object (n,), and its slot (n,)."""
    return _alone(np.concatenate(read_slots(codes)))


def _alone(slots: Integers) -> tuple[Integers, Integers]:
    """Return the object of each scene of one object (n,), and its slot (n,)."""
    place = (slots >= 0).argmax(axis=1)
    return slots[np.arange(len(slots)), place], place


def planted_vectors(slots: Integers, sizes: Sequence[int], encoder: Mapping[str, Any]) -> Doubles:
    """Return embeddings (n, d) by a planted encoder, given as its configuration has it.

    Parameters
    ----------
    slots
        Objects by slot (n, m): all of them, or one in each scene and -1 elsewhere.
    sizes
        Numbers of values.
    encoder
        The encoder.
    """
    places = None
    if (slots < 0).any():
        objects, place = _alone(slots)
        slots, places = objects[:, None], (slots.shape[1], place[:, None])
    tables = Planted(encoder["dim"], encoder["seed"], encoder["slot_effect"], places)
    z = ENCODERS[encoder["kind"]](Scenes(slots, tuple(sizes)), tables)
    noise = rng(encoder["seed"], 9).standard_normal(z.shape)
    return np.asarray(z + encoder["noise"] * noise)


def read_embeddings(path: str, vectors: str) -> Floats:
    """Read embeddings (n, d) of all splits.

    Parameters
    ----------
    path
        Manifest of a store with an array per split (`planted`, `joint`, and `text`, of which the
        first template is read), or an index of activations, of which the last layer is.
    vectors
        Which of these.
    """
    if vectors in ("cls", "mean"):
        images = Activations(path)
        return np.concatenate([images.pooled(s, vectors, images.layers[-1]) for s in SPLITS])
    store = open_store(path)
    if vectors == "text":
        return np.concatenate([store.read(split)[0] for split in SPLITS])
    return np.concatenate([store.read(split) for split in SPLITS])


def read_captions(path: str, scenes: Scenes) -> tuple[Readout, Floats]:
    """Read captions (first template): those of values and objects as queries, and of the scenes."""
    store = open_store(path)
    concepts = np.split(store.read("concept")[0], np.cumsum(scenes.sizes)[:-1])
    of_objects = store.read("object")[0][scenes.present]
    return queries(concepts, of_objects, scenes.present), read_embeddings(path, "text")


def image_queries(z: Floats, objects: Integers, scenes: Scenes) -> Readout:
    """Return images of one object as queries: their mean directions by object, and by value.

    Parameters
    ----------
    z, objects
        Images in the space of captions (n, d), and what they show, (n,).
    scenes
        Scenes that are asked about; candidates are their objects of which there is an image.
    """
    directions = unit(z)
    by_object = means(objects[:, None], scenes.n_objects, directions)
    known = np.intersect1d(scenes.present, objects)
    values = scenes.values_of_objects[objects]
    concepts = [
        np.nan_to_num(means(values[:, k, None], size, directions))
        for k, size in enumerate(scenes.sizes)
    ]
    return queries(concepts, by_object[known], known)


def read_dual(
    path: str, spec: Mapping[str, Any], device: str = "cpu"
) -> Iterator[tuple[dict[str, Any], Embedded]]:
    """Yield the pairs of some objects as each run of a dual encoder embeds them.

    They are read by its own queries: no probe is fitted.

    Parameters
    ----------
    path
        The job's weights.
    spec
        `sizes`; `dual`: `name`, `encoder` (kind and options, as the configuration has them),
        `query_pool`, and the most `objects`: where there are more, so many are drawn by the run's
        seed.
    device
        Where they are embedded.

    Yields
    ------
    Columns of `binding_complexity` that name the run, and its embedding.
    """
    dual, sizes = spec["dual"], tuple(spec["sizes"])
    for run in resolve(DUAL_RUNS)(path, dual["encoder"], sizes):
        order = rng(run.seed, 21).permutation(int(np.prod(sizes)))
        objects = np.sort(order[: dual["objects"]])
        scenes = Scenes(objects[Scenes.all_of((len(objects),)).slots], sizes)
        encoder = run.encoder.to(device)
        readout = encoder.queries(objects)
        about = {
            "encoder": dual["name"], "query_pool": dual["query_pool"],
            "trained_coverage": run.coverage, "trained_seed": run.seed,
        }  # fmt: skip
        yield (
            about,
            Embedded(encoder.embed(scenes.slots), scenes, readout, split_by=spec["split_by"]),
        )
