"""Text towers of the models that the pipeline trains with captions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bindscope.config.codes import SceneDistribution
from bindscope.config.models import Controlled, Zoo
from bindscope.config.wording import instead
from bindscope.core.errors import ModelError
from bindscope.models.objectives.captions import SHARED, PairedCaptions
from bindscope.models.pretraining_loss import Restored, restore
from bindscope.scenes.value_names import value_names

if TYPE_CHECKING:
    from bindscope.scenes.captions import GroupWords


class OwnTexts:
    """The text tower of `models.objectives.captions`; see `models.loading.TextTower`.

    It reads words, not sentences, in any order of the objects, and a type that occurs twice as one
    that occurs: so it was trained. It never saw a word alone; the vector of a value is the mean of
    the unit vectors of all objects that have it.
    """

    dim = SHARED

    def __init__(self, restored: Restored, revision: str) -> None:
        assert isinstance(restored.objective, PairedCaptions)
        self.where, self.objective, self.revision = restored.where, restored.objective, revision
        self.weights_sha256 = restored.sha256
        dataset = SceneDistribution.model_validate({**restored.recipe["dataset"], "name": "recipe"})
        self.values = [list(group["values"]) for group in value_names(dataset)]

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], words: Sequence[GroupWords]) -> NDArray[np.float32]:
        """Return the joint space's vector of each caption; `texts` are not read."""
        scenes = [[self._cells(object_) for object_ in scene] for scene in words]
        vectors = torch.zeros(len(words), SHARED)
        fully_named = [
            i for i, scene in enumerate(scenes) if all(len(cells) == 1 for cells in scene)
        ]
        vectors[fully_named] = self._read([[cell for (cell,) in scenes[i]] for i in fully_named])
        if len(fully_named) < len(scenes):
            objects = functional.normalize(self._read([[c] for c in range(self._n_cells)]), dim=-1)
            for i in set(range(len(scenes))) - set(fully_named):
                vectors[i] = objects[scenes[i][0]].mean(0)
        return np.asarray(vectors.numpy(), np.float32)

    @torch.inference_mode()
    def project(self, cls: NDArray[np.floating]) -> NDArray[np.float32]:
        """Bring [CLS] after the final norm (n, width) into the joint space."""
        weight = self.objective.image.weight
        projected = self.objective.image(torch.from_numpy(np.float32(cls)).to(weight.device))
        return np.asarray(projected.cpu().numpy(), np.float32)

    @property
    def _n_cells(self) -> int:
        return prod(map(len, self.values))

    def _read(self, scenes: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of scenes given by their cells, (n, SHARED), on the CPU."""
        values = self.objective.values
        assert isinstance(values, Tensor)
        objects = torch.zeros(len(scenes), self._n_cells)
        for row, cells in zip(objects, scenes, strict=True):
            row[list(cells)] = 1
        vectors: Tensor = self.objective.text(objects.to(values.device), values)
        return vectors.cpu()

    def _cells(self, words: Sequence[str | None]) -> list[int]:
        """Return the cells that an object's words can mean."""
        if len(words) != len(self.values):
            raise ModelError(
                self.where,
                f"it knows {len(self.values)} words of each object, the captions have {len(words)}",
                "caption scenes with the feature groups that it was trained on, in their order",
            )
        choices = []
        for word, known in zip(words, self.values, strict=True):
            if word is not None and word not in known:
                raise ModelError(
                    self.where,
                    f"it does not know the word {word!r}{instead(word, known)}",
                    "caption scenes with the words that it was trained on",
                )
            choices.append(range(len(known)) if word is None else [known.index(word)])
        sizes = tuple(map(len, self.values))
        return [int(np.ravel_multi_index(place, sizes)) for place in product(*choices)]


def load(config: Controlled | Zoo, weights: Path | None, device: torch.device) -> OwnTexts:
    """Load the text tower of a model that was trained with captions (`pretraining_loss.restore`).

    ModelError if it was trained for something else, or its file holds the image tower alone.
    """
    where = f"the text tower of {config.name} ({config.source})"
    restored = restore(config, weights, device, where)
    if not isinstance(restored.objective, PairedCaptions):
        raise ModelError(
            where,
            "it was not trained with captions",
            "use a model of the objective captions or captions_unpaired",
        )
    return OwnTexts(restored, f"{config.source}, seed {config.seed}")
