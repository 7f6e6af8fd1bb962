"""Small problems for the tests of the probes room."""

import torch
from pydantic import TypeAdapter

from bindscope.studies.binding_information.config import AnyProbe
from bindscope.studies.binding_information.probe_checks import PRIOR_LOG_ODDS
from bindscope.studies.binding_information.probe_checks import planted_bits as problem
from bindscope.studies.binding_information.probes.base import all_parts
from bindscope.studies.binding_information.registry import FAMILIES as REGISTRY
from bindscope.studies.binding_information.registry import options_of

__all__ = ["PRIOR", "problem"]
FAMILIES = tuple(REGISTRY)
SIZES = (3, 4)
PRIOR = PRIOR_LOG_ODDS
ADAPTER = TypeAdapter(AnyProbe)


def probe(family, **fields):
    return ADAPTER.validate_python({"name": "p", "family": family, **fields})


def heads(name, sizes=SIZES):
    return next(part for part in all_parts(sizes) if part.name == name)


def tokens_of(name, tokens=14):
    """How many patch tokens a family reads in a test: none where it reads vectors."""
    return tokens if options_of(name).patches else 0


def generator(seed=0):
    return torch.Generator().manual_seed(seed)
