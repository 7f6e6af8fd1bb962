"""One job: train dual encoders of all coverages and seeds, score them, write and read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from bindscope.core.array_types import Floats, Integers
from bindscope.fitting.generators import rng
from bindscope.studies.concepts.config import DualEncoders, Encoder
from bindscope.studies.concepts.dual.batches import TrainTestObjects
from bindscope.studies.concepts.dual.encoders import ENCODERS, DualEncoder
from bindscope.studies.concepts.dual.training import EncoderRun, TrainedEncoders
from bindscope.studies.concepts.recognition import Readout, recognize
from bindscope.studies.concepts.scenes import Scenes
from bindscope.tables.rows import Row

FITTED = 0.95  # of training pairs that are recognized
SAMPLING = 3  # stream of a seed


def entry_of(spec: Mapping[str, Any], names: Mapping[str, str]) -> DualEncoders:
    """Return the entry of a job's configuration, with its space and pool only."""
    fields = {name: spec[name] for name in DualEncoders.model_fields if name in spec}
    alone = {"spaces": [spec["sizes"]], "query_pools": [names["query_pool"]]}
    return DualEncoders.model_validate({**fields, **alone, "name": names["encoder"]})


def encoder_of(
    options: Encoder, sizes: Sequence[int], seed: int, weights: Mapping[str, Tensor]
) -> DualEncoder:
    """Return a trained encoder."""
    encoder = ENCODERS[options.kind](sizes, options, seed)
    encoder.load_state_dict(weights)
    return encoder.eval()


def rows(
    entry: DualEncoders,
    sizes: Sequence[int],
    runs: Sequence[EncoderRun],
    trained: Sequence[TrainedEncoders],
    device: str = "cpu",
) -> Iterator[Row]:
    """Yield a row per run, split, number of objects, candidates, target and stratum."""
    for (coverage, seed, split), of_run in zip(runs, trained, strict=True):
        encoder = encoder_of(entry.encoder, sizes, seed, of_run.weights).to(device)
        about = {
            "trained_coverage": coverage,
            "trained_seed": seed,
            "kind": entry.encoder.kind,
            "n_absent_values": split.missing_values,
            "dim": entry.encoder.dim,
            "n_parameters": sum(p.numel() for p in encoder.parameters()),
            "split_by": "objects",
        }
        scores = list(_scores(entry, encoder, split, seed))
        flags = [*of_run.flags, *unfitted(scores)]
        for row in scores:
            yield {**about, **row, "flags": ";".join(sorted(flags))}


def unfitted(scores: Sequence[Row]) -> list[str]:
    """Return `not_fitted` where training pairs are not recognized: then others say little."""
    (trained,) = (
        row["value"]
        for row in scores
        if (row["split"], row["n_slots"], row["measure"], row["variant"], row["stratum"])
        == ("train", 2, "object", "trained", "all")
    )
    return [] if trained >= FITTED else ["not_fitted"]


def _scores(
    entry: DualEncoders, encoder: DualEncoder, split: TrainTestObjects, seed: int
) -> Iterator[Row]:
    """Yield what a run recognizes: of objects it was trained on, and of those for testing."""
    queries, most = encoder.queries(), entry.max_scenes
    for name, objects in (("train", split.train), ("test", split.test)):
        for scenes in (draw(objects, encoder.sizes, most, seed) for draw in (singles, pairs)):
            # What is not finite ties with everything: an encoder that diverged recognizes nothing.
            z = np.nan_to_num(encoder.embed(scenes.slots), posinf=0.0, neginf=0.0)
            for candidates in (None, split.train) if name == "train" else (None,):
                for row in evaluate(z, queries, scenes, candidates):
                    yield {"split": name, **row}


# --- What they recognize --------------------------------------------------------------------------


def pairs(objects: Integers, sizes: Sequence[int], max_scenes: int | None, seed: int) -> Scenes:
    """Return the scenes of two different objects, (a, b) and (b, a) both.

    Where there are more than `max_scenes`, so many are drawn without replacement.
    """
    n = len(objects)
    first, second = np.divmod(_drawn(n * (n - 1), max_scenes, seed), max(n - 1, 1))
    second += second >= first
    return Scenes(np.stack([objects[first], objects[second]], 1), tuple(sizes))


def singles(objects: Integers, sizes: Sequence[int], max_scenes: int | None, seed: int) -> Scenes:
    """Return scenes of one object; see `pairs`."""
    drawn = objects[_drawn(len(objects), max_scenes, seed)]
    return Scenes(drawn[:, None], tuple(sizes))


def _drawn(n: int, most: int | None, seed: int) -> Integers:
    """Return numbers below `n` in order: all, or so many of them without replacement."""
    if most is None or n <= most:
        return np.arange(n)
    return np.sort(rng(seed, SAMPLING).choice(n, most, replace=False))


def evaluate(
    z: Floats, queries: Readout, scenes: Scenes, candidates: Integers | None = None
) -> Iterator[Row]:
    """Yield what queries of all objects and values recognize in embeddings (n, d) of scenes.

    A row per target and stratum. With `candidates`, only objects are recognized, among these,
    which hold those of all scenes.
    """
    about = {
        "variant": "full" if candidates is None else "trained",
        "n_slots": scenes.n_slots,
        "n_objects": len(scenes.present),
    }
    if candidates is not None:
        queries = replace(queries, objects=queries.objects[candidates], candidates=candidates)
    for row in recognize(queries, z, scenes, resamples=0):
        if candidates is None or row["measure"] == "object":
            yield {**about, **row}


# --- Files ----------------------------------------------------------------------------------------


def weights_file(trained: Sequence[TrainedEncoders], runs: Sequence[EncoderRun]) -> bytes:
    """Return the weights of all runs as a safetensors file, with what distinguishes the runs."""
    about = [{"coverage": run.coverage, "seed": run.seed} for run in runs]
    tensors = {
        f"{i}.{name}": value
        for i, of_run in enumerate(trained)
        for name, value in of_run.weights.items()
    }
    return save(tensors, {"runs": json.dumps(about)})


def stored_runs(
    path: Path | str, encoder: Mapping[str, Any], sizes: Sequence[int]
) -> Iterator[tuple[float, int, DualEncoder]]:
    """Yield coverage, seed and encoder (on the CPU) of the runs of a job from its weights.

    `encoder` has kind and options as the configuration has them.
    """
    options: Encoder = TypeAdapter(Encoder).validate_python(encoder)
    with safe_open(str(path), framework="pt") as file:
        for i, run in enumerate(json.loads(file.metadata()["runs"])):
            names = [name for name in file.keys() if name.startswith(f"{i}.")]  # noqa: SIM118
            weights = {name.removeprefix(f"{i}."): file.get_tensor(name) for name in names}
            yield run["coverage"], run["seed"], encoder_of(options, sizes, run["seed"], weights)
