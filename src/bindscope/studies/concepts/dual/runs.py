"""One job: train dual encoders of all coverages and seeds, score them, write and read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, from_numpy

from bindscope.core.files import canonical_json, write_atomic, write_json
from bindscope.studies.concepts.config import DualEncoders
from bindscope.studies.concepts.dual.batches import Split
from bindscope.studies.concepts.dual.encoders import DualEncoder
from bindscope.studies.concepts.dual.evaluation import Score, evaluate, pairs, singles
from bindscope.studies.concepts.dual.training import Runs, Trained, build

FITTED = 0.95  # of training pairs that are recognised


def entry_of(spec: Mapping[str, Any], names: Mapping[str, str]) -> DualEncoders:
    """Return the entry of a job's configuration, with its space and pool alone.

    Parameters
    ----------
    spec
        The job's: `sizes`, and those fields of the entry that it depends on.
    names
        `encoder` and `query_pool`.
    """
    fields = {name: spec[name] for name in DualEncoders.model_fields if name in spec}
    alone = {"spaces": [spec["sizes"]], "query_pools": [names["query_pool"]]}
    return DualEncoders.model_validate({**fields, **alone, "name": names["encoder"]})


def run_of(
    entry: DualEncoders, sizes: Sequence[int], seed: int, weights: Mapping[str, Tensor], run: int
) -> DualEncoder:
    """Return the encoders of one run of a job.

    Parameters
    ----------
    entry, sizes
        Kind of encoder, and number of values of each concept type.
    seed
        Seed of the run.
    weights
        Parameters of all runs, as `training.Trained.weights` has them.
    run
        Its place among them.
    """
    encoder = build(entry.encoder.kind, sizes, entry.encoder, [seed])
    encoder.load_state_dict({name: value[run : run + 1] for name, value in weights.items()})
    return encoder.eval()


def rows(
    entry: DualEncoders, sizes: Sequence[int], runs: Runs, trained: Trained, device: str = "cpu"
) -> Iterator[dict[str, Any]]:
    """Yield a row per run, selection, split, number of objects, target, candidates and stratum.

    Parameters
    ----------
    entry, sizes
        The job's entry and space.
    runs, trained
        Its runs, and what became of them.
    device
        Where scenes are embedded and scored.
    """
    for i, (coverage, seed, split) in enumerate(
        zip(runs.coverages, runs.seeds, runs.splits, strict=True)
    ):
        for selected in entry.evaluation.selected:
            encoder = run_of(entry, sizes, seed, trained.weights[selected], i).to(device)
            about = {
                "coverage": coverage, "seed": seed, "selected": selected,
                "kind": entry.encoder.kind, "n_types": len(sizes), "n_space": prod(sizes),
                "n_train_objects": len(split.train), "n_test_objects": len(split.test),
                "n_missing_values": split.missing_values,
                "n_parameters": sum(p.numel() for p in encoder.parameters()),
                "train_loss_bits": _finite(trained.losses[-1, i, 0]),
                "steps": trained.steps[-1],
            }  # fmt: skip
            scores = list(_scores(entry, encoder, split, seed, device))
            flags = [*trained.flags(i), *unfitted(scores)]
            for row in scores:
                yield {**about, **row, "flags": ";".join(sorted(flags))}


def _finite(loss: float) -> float | None:
    return float(loss) if isfinite(loss) else None


def unfitted(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return `not_fitted` where training pairs are not recognised: then others say little."""
    (trained,) = (
        row["accuracy"] for row in found
        if (row["split"], row["n_objects"], row["target"], row["candidates"], row["stratum"])
        == ("train", 2, "object", "trained", "all")
    )  # fmt: skip
    return [] if trained >= FITTED else ["not_fitted"]


def _scores(
    entry: DualEncoders, encoder: DualEncoder, split: Split, seed: int, device: str
) -> Iterator[dict[str, Any]]:
    """Yield what a run recognises: of objects it was trained on, and of those for testing."""
    queries = encoder.queries()
    for name, objects in (("train", split.train), ("held_out", split.test)):
        most = entry.evaluation.max_scenes
        alone = singles(objects, encoder.sizes, max_scenes=most, seed=seed)
        two = pairs(
            objects, encoder.sizes, ordered=not encoder.order_free, max_scenes=most, seed=seed
        )
        further = entry.evaluation.candidates
        for n, scenes in enumerate((alone, two), 1):
            known = queries, scenes, split.train
            for score in evaluate(encoder.embed, *known, further, seed, device):
                yield scored(name, n, score)


def scored(split: str, n_objects: int, score: Score) -> dict[str, Any]:
    """Return the columns of a score: of scenes of so many objects of a split."""
    accuracy = score.accuracy
    return {
        "split": split, "n_objects": n_objects, "target": score.target,
        "candidates": score.candidates, "stratum": accuracy.stratum, "accuracy": accuracy.value,
        "chance": accuracy.chance, "bag_of_concepts_floor": _finite(accuracy.bag_of_concepts_floor),
        "n_scenes": accuracy.n_scenes, "n_all_scenes": score.n_all,
    }  # fmt: skip


def write_results(
    output: Any,
    found: Sequence[Mapping[str, Any]],
    runs: Runs,
    trained: Trained,
    names: Mapping[str, Any],
) -> None:
    """Write rows, weights with the objects of each run, and the history.

    Parameters
    ----------
    output
        Paths `rows`, `weights`, `history`.
    found
        What `rows` yields.
    runs, trained
        The job's runs, and what became of them.
    names
        Columns that the job knows: encoder, space, query pool, keys.
    """
    tensors = {
        f"{selected}.{name}": value
        for selected, weights in trained.weights.items()
        for name, value in weights.items()
    }
    for i, split in enumerate(runs.splits):
        for part in ("train", "validation", "test"):
            tensors[f"objects.{i}.{part}"] = from_numpy(getattr(split, part))
    about = [{"coverage": c, "seed": s} for c, s in zip(runs.coverages, runs.seeds, strict=True)]
    write_atomic(output.weights, save(tensors, {"runs": json.dumps(about)}))
    history = [
        {**run, "steps": trained.steps, "scale": trained.scale[i],
         "train_bits": [_finite(loss) for loss in trained.losses[:, i, 0]],
         "validation_bits": [_finite(loss) for loss in trained.losses[:, i, 1]]}
        for i, run in enumerate(about)
    ]  # fmt: skip
    write_json(output.history, history)
    lines = "".join(canonical_json({**names, **row}) + "\n" for row in found)
    write_atomic(output.rows, lines)


@dataclass(frozen=True)
class StoredRun:
    """One coverage and seed of a job.

    Attributes
    ----------
    coverage, seed
        Which one.
    encoder
        Its encoders, on the CPU.
    split
        Its objects.
    """

    coverage: float
    seed: int
    encoder: DualEncoder
    split: Split


def stored_runs(
    path: Path | str, encoder: Mapping[str, Any], sizes: Sequence[int], selected: str = "final"
) -> Iterator[StoredRun]:
    """Yield the runs of a job, in its order.

    Parameters
    ----------
    path
        The job's weights.
    encoder
        Kind and options, as the configuration has them.
    sizes
        The job's numbers of values.
    selected
        Which weights.
    """
    # Of an entry, only its encoder is read: coverages and seeds are in the file.
    fields = {"name": "stored", "encoder": encoder, "spaces": [tuple(sizes)], "coverages": [0.5]}
    entry = DualEncoders.model_validate(fields)
    with safe_open(str(path), framework="pt") as file:
        weights = {
            name.removeprefix(f"{selected}."): file.get_tensor(name)
            for name in file.keys()  # noqa: SIM118
            if name.startswith(f"{selected}.")
        }
        for i, about in enumerate(json.loads(file.metadata()["runs"])):
            train, validation, test = (
                file.get_tensor(f"objects.{i}.{part}").numpy()
                for part in ("train", "validation", "test")
            )
            run = run_of(entry, sizes, about["seed"], weights, i)
            yield StoredRun(
                about["coverage"], about["seed"], run, Split(train, validation, test, 0)
            )
