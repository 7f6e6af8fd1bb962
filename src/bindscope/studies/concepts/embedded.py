"""Embeddings of scenes as a job reads them: of a planted encoder, or of a model; all splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bindscope.activations.reader import Activations
from bindscope.core.errors import InputError
from bindscope.core.registries import resolve
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.counting import SplitBy
from bindscope.studies.concepts.planted_encoders import ENCODERS, Planted
from bindscope.studies.concepts.recognition import unit
from bindscope.studies.concepts.registry import DUAL_RUNS
from bindscope.studies.concepts.rows import Embedded
from bindscope.studies.concepts.scenes import Doubles, Floats, Integers, Scenes, values_of
from bindscope.studies.concepts.vectors import means

if TYPE_CHECKING:
    import pandas as pd


def read_slots(codes: Sequence[str]) -> list[Integers]:
    """Read the objects of each split's scenes by slot, (n, m); -1 where a slot is empty.

    Parameters
    ----------
    codes
        Manifests of the codes, by split in the order of `SPLITS`.
    """
    return [open_store(path).read("slots").astype(np.int64) for path in codes]


def read_arrays(
    inputs: Mapping[str, Sequence[str]], vectors: str, sizes: Sequence[int]
) -> tuple[Floats, pd.DataFrame]:
    """Read an embedding of a dataset whose scenes fill their slots, as `measure.concepts` takes it.

    Parameters
    ----------
    inputs
        Files by role: `codes`, `embeddings`, and of scenes of one object, where there are any,
        `single_codes`, `single_embeddings`.
    vectors
        Which these are.
    sizes
        Numbers of values.

    Returns
    -------
    Embeddings (n, d) of all splits, then of scenes of one object, and the table of their objects.
    """
    z = read_embeddings(inputs["embeddings"][0], vectors)
    slots = np.concatenate(read_slots(inputs["codes"]))
    if n_partial := int((slots < 0).any(axis=1).sum()):
        raise InputError(
            inputs["codes"][0],
            f"{n_partial} of {len(slots)} scenes leave a slot empty",
            "leave them out of what the dataset reads, or make a dataset of each number of objects",
        )
    if inputs.get("single_codes"):
        slots = np.concatenate([slots, *read_slots(inputs["single_codes"])])
        z = np.concatenate([z, read_embeddings(inputs["single_embeddings"][0], vectors)])
    return z, object_table(slots, sizes)


def object_table(slots: Integers, sizes: Sequence[int]) -> pd.DataFrame:
    """Return a row per object of scenes (n, m): `scene`, `slot`, and a column per concept type."""
    import pandas as pd

    scene, slot = np.nonzero(slots >= 0)
    values = values_of(slots[scene, slot], sizes)
    kinds = {
        f"type{k}": pd.Categorical.from_codes(values[:, k], pd.Index(range(size)))
        for k, size in enumerate(sizes)
    }
    return pd.DataFrame({"scene": scene, "slot": slot, **kinds})


def read_embedded(
    inputs: Mapping[str, Sequence[str]],
    vectors: str,
    sizes: Sequence[int],
    split_by: SplitBy,
    device: str = "cpu",
) -> Embedded:
    """Read an embedding for approximators; parameters are those of `read_arrays`."""
    scenes = {role: inputs[role] for role in ("codes", "embeddings")}
    z, _ = read_arrays(scenes, vectors, sizes)
    slots = np.concatenate(read_slots(inputs["codes"]))
    return Embedded(z, Scenes(slots, tuple(sizes)), split_by=split_by, device=device)


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
    tables = Planted(encoder["dim"], 0, encoder["slot_effect"], places)
    return ENCODERS[encoder["kind"]](Scenes(slots, tuple(sizes)), tables)


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


def read_captions(path: str, sizes: Sequence[int], n_alone: int = 0) -> dict[str, Any]:
    """Read captions (first template) as `texts` of `measure.concepts`.

    Parameters
    ----------
    path
        Manifest of their embeddings.
    sizes
        Numbers of values.
    n_alone
        Scenes of one object after the others, which have no captions here.
    """
    store = open_store(path)
    scenes = read_embeddings(path, "text")
    absent = np.full((n_alone, scenes.shape[1]), np.nan, scenes.dtype)
    return {
        "scenes": np.concatenate([scenes, absent]),
        "objects": store.read("object")[0],
        "values": np.split(store.read("concept")[0], np.cumsum(sizes)[:-1]),
    }


def image_queries(z: Floats, objects: Integers, sizes: Sequence[int]) -> dict[str, Any]:
    """Return images of one object as `texts` of `measure.concepts`.

    Queries are mean directions, by object (NaN where it has no image) and by value.

    Parameters
    ----------
    z, objects
        Images in the space of captions (n, d), and what they show, (n,).
    sizes
        Numbers of values.
    """
    directions = unit(z)
    values = values_of(objects, sizes)
    return {
        "name": "images",
        "objects": means(objects[:, None], prod(sizes), directions),
        "values": [
            np.nan_to_num(means(values[:, k, None], size, directions))
            for k, size in enumerate(sizes)
        ],
    }


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
        `sizes`; `dual`: `encoder` (kind and options, as the configuration has them), and the most
        `objects`: where there are more, so many are drawn by the run's
        seed.
    device
        Where they are embedded.

    Yields
    ------
    Columns that name the run, and its embedding.
    """
    dual, sizes = spec["dual"], tuple(spec["sizes"])
    for run in resolve(DUAL_RUNS)(path, dual["encoder"], sizes):
        order = rng(run.seed, 21).permutation(int(np.prod(sizes)))
        objects = np.sort(order[: dual["objects"]])
        scenes = Scenes(objects[Scenes.all_of((len(objects),)).slots], sizes)
        encoder = run.encoder.to(device)
        readout = encoder.queries(objects)
        about = {
            "trained_coverage": run.coverage, "trained_seed": run.seed,
        }  # fmt: skip
        yield (
            about,
            Embedded(encoder.embed(scenes.slots), scenes, readout, split_by=spec["split_by"]),
        )
