"""Embeddings of scenes as a job reads them: of a planted encoder, or of a model; all splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bindscope.activations.reader import Activations
from bindscope.core.array_types import Doubles, Floats, Integers
from bindscope.core.errors import InputError
from bindscope.core.registries import resolve
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import open_store
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.planted_encoders import ENCODERS, PlantedVectors
from bindscope.studies.concepts.recognition import Embedded
from bindscope.studies.concepts.registry import DUAL_RUNS
from bindscope.studies.concepts.scenes import Scenes, values_of

if TYPE_CHECKING:
    import pandas as pd


def read_slots(codes: Sequence[str]) -> list[Integers]:
    """Read the objects of scenes by slot, (n, m) of each split; -1 where a slot is empty."""
    return [open_store(path).read("slots").astype(np.int64) for path in codes]


def read_arrays(
    inputs: Mapping[str, Sequence[str]], vectors: str, spec: Mapping[str, Any]
) -> tuple[Floats, pd.DataFrame]:
    """Read an embedding of a dataset whose scenes fill their slots, as `measure.concepts` takes it.

    Inputs are files by role: `codes`, `embeddings`, and of scenes of one object, where there are
    any, `single_codes`, `single_embeddings`. Of planted embeddings the `spec` has the `encoder`.
    Returns embeddings (n, d) of all splits, then of scenes of one object, and the table of their
    objects.
    """
    z, slots = _read_filled(inputs, vectors, spec)
    if inputs.get("single_codes"):
        single = np.concatenate(read_slots(inputs["single_codes"]))
        z = np.concatenate([z, _embedded(inputs, "single_embeddings", vectors, single, spec)])
        slots = np.concatenate([slots, single])
    return z, object_table(slots, spec["sizes"])


def _read_filled(
    inputs: Mapping[str, Sequence[str]], vectors: str, spec: Mapping[str, Any]
) -> tuple[Floats, Integers]:
    """Read embeddings (n, d) and slots (n, m) of all splits; `InputError` if a slot is empty."""
    slots = np.concatenate(read_slots(inputs["codes"]))
    if n_partial := int((slots < 0).any(axis=1).sum()):
        raise InputError(
            inputs["codes"][0],
            f"{n_partial} of {len(slots)} scenes leave a slot empty",
            "leave them out of what the dataset reads, or make a dataset of each number of objects",
        )
    return _embedded(inputs, "embeddings", vectors, slots, spec), slots


def _embedded(
    inputs: Mapping[str, Sequence[str]],
    role: str,
    vectors: str,
    slots: Integers,
    spec: Mapping[str, Any],
) -> Floats:
    """Read embeddings (n, d) of scenes, or make those of a planted encoder, float32 as models'."""
    if vectors == "planted":
        return planted_vectors(slots, spec["sizes"], spec["encoder"]).astype(np.float32)
    return read_embeddings(inputs[role][0], vectors)


def object_table(slots: Integers, sizes: Sequence[int]) -> pd.DataFrame:
    """Return a row per object of scenes (n, m): `scene`, `slot`, and a column per feature group."""
    import pandas as pd

    scene, slot = np.nonzero(slots >= 0)
    values = values_of(slots[scene, slot], sizes)
    kinds = {
        f"type{k}": pd.Categorical.from_codes(values[:, k], pd.Index(range(size)))
        for k, size in enumerate(sizes)
    }
    return pd.DataFrame({"scene": scene, "slot": slot, **kinds})


def read_embedded(
    inputs: Mapping[str, Sequence[str]], vectors: str, spec: Mapping[str, Any], device: str = "cpu"
) -> Embedded:
    """Read an embedding for approximators; see `read_arrays`."""
    z, slots = _read_filled(inputs, vectors, spec)
    scenes = Scenes(slots, tuple(spec["sizes"]))
    return Embedded(z, scenes, device=device, **how_fitted(spec))


def how_fitted(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the split, the protocol and its steps of a job's configuration."""
    return {name: spec[name] for name in ("split_by", "protocol", "probe_steps") if name in spec}


def planted_vectors(slots: Integers, sizes: Sequence[int], encoder: Mapping[str, Any]) -> Doubles:
    """Return embeddings (n, d) by a planted encoder, of its entry of the configuration.

    Slots (n, m) are -1 where they are empty.
    """
    tables = PlantedVectors(encoder["dim"], 0, encoder["slot_effect"], slots >= 0)
    return ENCODERS[encoder["kind"]](Scenes(np.maximum(slots, 0), tuple(sizes)), tables)


def read_embeddings(path: str, vectors: str) -> Floats:
    """Read embeddings (n, d) of all splits.

    The file is the manifest of a store with an array per split (`joint`, and `text`, of which the
    first template is read), or an index of activations, of which the last layer is.
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

    `n_alone` scenes of one object, after the others, have no captions here.
    """
    store = open_store(path)
    scenes = read_embeddings(path, "text")
    absent = np.full((n_alone, scenes.shape[1]), np.nan, scenes.dtype)
    return {
        "scenes": np.concatenate([scenes, absent]),
        "objects": store.read("object")[0],
        "values": np.split(store.read("concept")[0], np.cumsum(sizes)[:-1]),
    }


def read_dual(
    path: str, spec: Mapping[str, Any], device: str = "cpu"
) -> Iterator[tuple[dict[str, Any], Embedded]]:
    """Yield the pairs of some objects as each run of a dual encoder embeds them.

    The encoder's own queries score them: no probe is fitted. `spec` has `sizes` and `dual`: the
    `encoder`, and the most `objects`; where there are more, so many are drawn by the run's seed.
    Yields columns that name the run, and its embedding; runs that diverged have none.
    """
    dual, sizes, n = spec["dual"], tuple(spec["sizes"]), 0
    for coverage, seed, encoder in resolve(DUAL_RUNS)(path, dual["encoder"], sizes):
        order = rng(seed, 21).permutation(int(np.prod(sizes)))
        objects = np.sort(order[: dual["objects"]])
        scenes = Scenes(objects[Scenes.all_of((len(objects),)).slots], sizes)
        encoder.to(device)
        readout = encoder.queries(objects)
        z = encoder.embed(scenes.slots)
        about = {"trained_coverage": coverage, "trained_seed": seed}
        if not np.isfinite(z).all():  # its training diverged
            continue
        n += 1
        yield about, Embedded(z, scenes, readout, device=device, **how_fitted(spec))
    if not n:
        raise InputError(
            path,
            "the training of every encoder diverged, so that there is no embedding",
            "lower `training.learning_rate` of this dual encoder",
        )
