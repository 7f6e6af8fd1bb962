"""Probes of pairs by the kind that a configuration gives them."""

from __future__ import annotations

_SCORERS = "bindscope.studies.same_object.scorers"

SCORERS = {
    "linear": f"{_SCORERS}.linear:Linear",
    "diagonal": f"{_SCORERS}.diagonal:Diagonal",
    "quadratic": f"{_SCORERS}.quadratic:Quadratic",
    "position": f"{_SCORERS}.position:Position",
    "low_rank": f"{_SCORERS}.low_rank:LowRank",
    "class_pointwise": f"{_SCORERS}.class_pointwise:ClassPointwise",
    "class_position": f"{_SCORERS}.class_position:ClassPosition",
    "dot": f"{_SCORERS}.similarity:Dot",
    "cosine": f"{_SCORERS}.similarity:Cosine",
    "identity_pointwise": f"{_SCORERS}.identity_pointwise:IdentityPointwise",
    "mlp": f"{_SCORERS}.mlp:Mlp",
}
