"""Words of the study's tables that jobs and readers share."""

from __future__ import annotations

from typing import Literal

TARGETS = ("object", "concept", "concept_pooled")
CANDIDATES = ("full", "trained", "sampled", "swaps")
STRATA = ("all", "shared", "none")
# diverged: a loss was not finite. not_converged: the loss of training was still falling.
# not_fitted: not even training pairs are recognised among training objects, so that held-out ones
# say little.
FLAGS = ("diverged", "not_converged", "not_fitted")

# Of embeddings, in order. absent_values: values that no scene has. fewer_dimensions_than_objects:
# linear probes cannot tell all objects apart. incomplete: not every ordered tuple of objects is
# there once, so that averages mix what is not theirs. probes_not_converged, refit_not_converged:
# probes, or those fitted after a removal, are short of their optimum. unseen_objects: objects in no
# scene that probes were fitted on.
EMBEDDING_FLAGS = (
    "absent_values",
    "fewer_dimensions_than_objects",
    "incomplete",
    "not_converged",  # an approximator
    "probes_not_converged",
    "refit_not_converged",
    "unseen_objects",
)
VECTORS = ("planted", "cls", "mean", "joint", "text", "dual")
EMBEDDING_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"  # of a dual encoder with its query pool
# What stands on one side of a split: sets of objects, or single scenes (as in the paper).
SplitBy = Literal["objects", "scenes"]
SPLITS_BY: tuple[SplitBy, ...] = ("objects", "scenes")
