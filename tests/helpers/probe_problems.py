"""Small problems for the tests of the probes room."""

from dataclasses import replace

import numpy as np
import torch
from pydantic import TypeAdapter

from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probes.base import all_parts
from bindscope.studies.binding_information.probes.batches import Labels
from bindscope.studies.binding_information.probes.data import ProbeData
from bindscope.studies.binding_information.registry import FAMILIES as REGISTRY
from bindscope.studies.binding_information.registry import options_of
from bindscope.testing.probe_checks import PRIOR_LOG_ODDS
from bindscope.testing.probe_checks import planted_bits as problem

__all__ = ["PRIOR", "problem"]
FAMILIES = tuple(REGISTRY)
SIZES = (3, 4)
PRIOR = PRIOR_LOG_ODDS
ADAPTER = TypeAdapter(AnyProbe)


def probe(family, **fields):
    return ADAPTER.validate_python({"name": "p", "family": family, **fields})


def heads(name, sizes=SIZES):
    return next(part for part in all_parts(sizes) if part.name == name)


def null(data):
    """The same codes with z = 0, of dimension 1: one token per scene where there are patches."""

    def zeros(split):
        z = np.zeros((split.n_scenes, 1), np.float32)
        if not data.patches:
            return replace(split, z=z)
        return replace(split, z=z[:, None], cls=None if split.cls is None else z)

    return ProbeData(*map(zeros, data.splits.values()), sizes=data.sizes)


def released_problem():
    """Few scenes with much noise: by the paper's protocol a fit is best before its last epoch."""
    data = problem((80, 200, 200), noise=2.0, dim=40)
    splits = {name: replace(part, z=10 * part.z) for name, part in data.splits.items()}
    return ProbeData(**splits, sizes=SIZES)


def labelled(target, split):
    """All bits and anchors of a target, of a split."""
    (whole,) = target.heads(jointly=True)
    bits, anchors, _ = Labels.read(split, torch.device("cpu")).of_heads(whole)
    return bits.numpy(), None if anchors is None else anchors.numpy()


def tokens_of(name, tokens=14):
    """How many patch tokens a family reads in a test: none where it reads vectors."""
    return tokens if options_of(name).patches else 0


def generator(seed=0):
    return torch.Generator().manual_seed(seed)
