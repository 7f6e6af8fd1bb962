"""One job: train dual encoders of all coverages and seeds, score them, write and read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from bindscope.studies.concepts.config import DualEncoders, Encoder
from bindscope.studies.concepts.dual.batches import Split
from bindscope.studies.concepts.dual.encoders import ENCODERS, DualEncoder
from bindscope.studies.concepts.dual.evaluation import evaluate, pairs, singles
from bindscope.studies.concepts.dual.training import EncoderRun, Trained
from bindscope.studies.concepts.rows import Row, number

FITTED = 0.95  # of training pairs that are recognized


def entry_of(spec: Mapping[str, Any], names: Mapping[str, str]) -> DualEncoders:
    """Return the entry of a job's configuration, with its space and pool only."""
    fields = {name: spec[name] for name in DualEncoders.model_fields if name in spec}
    alone = {"spaces": [spec["sizes"]], "query_pools": [names["query_pool"]]}
    return DualEncoders.model_validate({**fields, **alone, "name": names["encoder"]})


def run_of(
    options: Encoder, sizes: Sequence[int], seed: int, weights: Mapping[str, Tensor], run: int
) -> DualEncoder:
    """Return the encoders of one run of a job, number `run` of those in `Trained.weights`."""
    encoder = ENCODERS[options.kind](sizes, options, [seed])
    encoder.load_state_dict({name: value[run : run + 1] for name, value in weights.items()})
    return encoder.eval()


def rows(
    entry: DualEncoders,
    sizes: Sequence[int],
    runs: Sequence[EncoderRun],
    trained: Trained,
    device: str = "cpu",
) -> Iterator[Row]:
    """Yield a row per run, split, number of objects, target, candidates and stratum."""
    for i, (coverage, seed, split) in enumerate(runs):
        encoder = run_of(entry.encoder, sizes, seed, trained.weights, i).to(device)
        about = {
            "coverage": coverage, "seed": seed,
            "kind": entry.encoder.kind, "n_space": prod(sizes),
            "n_train_objects": len(split.train), "n_test_objects": len(split.test),
            "n_missing_values": split.missing_values,
            "n_parameters": sum(p.numel() for p in encoder.parameters()),
            "train_loss_bits": number(trained.losses[-1, i]),
            "steps": trained.steps[-1],
        }  # fmt: skip
        scores = list(_scores(entry, encoder, split, seed))
        flags = [*trained.flags(i), *unfitted(scores)]
        for row in scores:
            yield {**about, **row, "flags": ";".join(sorted(flags))}


def unfitted(scores: Sequence[Row]) -> list[str]:
    """Return `not_fitted` where training pairs are not recognized: then others say little."""
    (trained,) = (
        row["accuracy"] for row in scores
        if (row["split"], row["n_objects"], row["target"], row["candidates"], row["stratum"])
        == ("train", 2, "object", "trained", "all")
    )  # fmt: skip
    return [] if trained >= FITTED else ["not_fitted"]


def _scores(entry: DualEncoders, encoder: DualEncoder, split: Split, seed: int) -> Iterator[Row]:
    """Yield what a run recognizes: of objects it was trained on, and of those for testing."""
    queries, most = encoder.queries(), entry.evaluation.max_scenes
    for name, objects in (("train", split.train), ("held_out", split.test)):
        single = singles(objects, encoder.sizes, max_scenes=most, seed=seed)
        two = pairs(
            objects, encoder.sizes, ordered=not encoder.order_free, max_scenes=most, seed=seed
        )
        for n, (scenes, n_all) in enumerate((single, two), 1):
            z = encoder.embed(scenes.slots)
            for candidates in (None, split.train) if name == "train" else (None,):
                for row in evaluate(z, queries, scenes, candidates):
                    yield {"split": name, "n_objects": n, "n_all_scenes": n_all, **row}


def weights_file(trained: Trained, runs: Sequence[EncoderRun]) -> bytes:
    """Return the weights of all runs as a safetensors file, with what distinguishes the runs."""
    about = [{"coverage": run.coverage, "seed": run.seed} for run in runs]
    return save(trained.weights, {"runs": json.dumps(about)})


def stored_runs(
    path: Path | str, encoder: Mapping[str, Any], sizes: Sequence[int]
) -> Iterator[tuple[float, int, DualEncoder]]:
    """Yield coverage, seed and encoder (on the CPU) of the runs of a job from its weights.

    `encoder` has kind and options as the configuration has them.
    """
    options: Encoder = TypeAdapter(Encoder).validate_python(encoder)
    with safe_open(str(path), framework="pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        runs = json.loads(file.metadata()["runs"])
    for i, run in enumerate(runs):
        yield run["coverage"], run["seed"], run_of(options, sizes, run["seed"], weights, i)
