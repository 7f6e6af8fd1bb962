"""Words of the study's tables that jobs and readers share."""

from __future__ import annotations

TARGETS = ("object", "concept", "concept_pooled")
CANDIDATES = ("full", "trained", "sampled", "swaps")
STRATA = ("all", "shared", "none")
# diverged: a loss was not finite. not_converged: the loss of training was still falling.
# not_fitted: not even training pairs are recognised among training objects, so that held-out ones
# say little.
FLAGS = ("diverged", "not_converged", "not_fitted")
