"""Dual encoders of images and captions: asked the same as those of symbolic scenes.

The encoder is a controlled model that was trained with captions of scenes of some objects
(`training.coverage`). Its images and captions are read as any model's are; here the pairs of
objects that it was trained on, and those of held-out ones, are told apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from bindscope.codes.coverage import covered_objects
from bindscope.config.models import Controlled
from bindscope.core.errors import InputError
from bindscope.core.store.reader import open_store
from bindscope.studies.concepts.dual.evaluation import Scenes, evaluate
from bindscope.studies.concepts.dual.geometry import Queries, measured
from bindscope.studies.concepts.dual.given import GivenEncoder
from bindscope.studies.concepts.dual.job import scored, unfitted
from bindscope.studies.concepts.dual.objects import Split, values_of
from bindscope.studies.concepts.dual.training import loss_flags
from bindscope.studies.concepts.marks import PIXELS
from bindscope.studies.concepts.scenes import Floats, Integers


class Measured:
    """A model's images and queries of a dataset, of each ordered pair of objects its first scene.

    Parameters
    ----------
    z, slots
        Images in the joint space (n, d), and their two objects, int64 (n, 2).
    queries
        Captions of all objects, and of all values.
    sizes
        Number of values of each concept type.
    model
        The model, with its coverage and seed.
    """

    def __init__(
        self, z: Floats, slots: Integers, queries: Queries, sizes: Sequence[int], model: Controlled
    ) -> None:
        assert model.training.coverage is not None  # the configuration's check has looked
        _, first = np.unique(slots @ [int(np.prod(sizes)), 1], return_index=True)
        kept = first[slots[first, 0] != slots[first, 1]]
        self.z, self.slots = z[kept], slots[kept]
        self.queries, self.sizes, self.model = queries, tuple(sizes), model
        covered = covered_objects(self.sizes, model.training.coverage, model.seed)
        train, test = np.flatnonzero(covered), np.flatnonzero(~covered)
        self.split = Split(train, np.zeros(0, np.int64), test, 0)

    def scenes(self, objects: Integers) -> Scenes:
        """Return the pairs that hold nothing but some objects.

        Raises
        ------
        InputError
            If there is none.
        """
        own = self.slots[np.isin(self.slots, objects).all(1)]
        if not len(own):
            raise InputError(
                f"pixel_encoders, model {self.model.name}",
                f"no scene holds two of the {len(objects)} objects of a split",
                "give the dataset the split rule `enumerated`, or change the model's coverage",
            )
        values = values_of(own, self.sizes)
        shared = (values[:, 0] == values[:, 1]).any(1)
        return Scenes(own, shared, len(objects) * (len(objects) - 1))

    def embed(self, slots: Integers) -> Floats:
        """Return the images of pairs."""
        n_objects = int(np.prod(self.sizes))
        place = np.full(n_objects**2, -1)
        place[self.slots @ [n_objects, 1]] = np.arange(len(self.slots))
        found: Floats = self.z[place[slots @ [n_objects, 1]]]
        return found

    def recognised(self, candidates: Sequence[Any]) -> list[dict[str, Any]]:
        """Return what is recognised, a row per split, target, candidates and stratum."""
        encoder = GivenEncoder(self.sizes, self.embed, *self.queries)
        parts = (("train", self.split.train), ("held_out", self.split.test))
        return [
            scored(name, 2, score)
            for name, objects in parts
            for score in evaluate(
                encoder, self.scenes(objects), self.split.train, candidates, self.model.seed
            )
        ]

    def geometry(self) -> dict[str, Any]:
        """Return the row of `concept_models`, without names."""
        about = {"coverage": self.model.training.coverage, "seed": self.model.seed}
        seed = self.model.seed
        return about | measured(self.z, self.slots, self.sizes, self.split, self.queries, seed)


def read_queries(path: str) -> Queries:
    """Read the vectors of captions of all objects and of all values, of the first template."""
    store = open_store(path)
    return store.read("object")[0], store.read("concept")[0]


def rows(
    found: Measured, candidates: Sequence[Any], history: str, weights: str
) -> Iterator[dict[str, Any]]:
    """Yield rows of `binding_generalization`, without the job's names.

    Parameters
    ----------
    found
        What was measured.
    candidates
        What is ranked besides all objects and those of training.
    history, weights
        Files of the training.
    """
    losses = [entry for entry in json.loads(Path(history).read_text()) if entry["split"] == "val"]
    bits = np.array([entry["loss_bits"] for entry in losses])
    with safe_open(weights, framework="np") as file:
        n = sum(int(np.prod(file.get_slice(key).get_shape())) for key in file.keys())  # noqa: SIM118
    recognised = found.recognised(candidates)
    flags = [*loss_flags(bits, [entry["step"] for entry in losses]), *unfitted(recognised)]
    about: Mapping[str, Any] = {
        "coverage": found.model.training.coverage, "seed": found.model.seed, "selected": "final",
        "kind": PIXELS, "n_types": len(found.sizes), "n_space": int(np.prod(found.sizes)),
        "n_train_objects": len(found.split.train), "n_test_objects": len(found.split.test),
        "n_missing_values": 0, "n_parameters": n, "steps": found.model.training.steps,
        "train_loss_bits": float(bits[-1]), "flags": ";".join(sorted(flags)),
    }  # fmt: skip
    for row in recognised:
        yield {**about, **row}
