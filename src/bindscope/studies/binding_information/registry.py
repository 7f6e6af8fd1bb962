"""Probe families by the name that a configuration gives them."""

from __future__ import annotations

_PROBES = "bindscope.studies.binding_information.probes"

FAMILIES = {
    "linear": f"{_PROBES}.linear:Linear",
    "quadratic": f"{_PROBES}.quadratic:Quadratic",
    "quadratic_reuse": f"{_PROBES}.multilinear:QuadraticReuse",
    "multilinear_reuse": f"{_PROBES}.multilinear:MultilinearReuse",
    "dnn": f"{_PROBES}.dnn:Dnn",
    "attention_quadratic": f"{_PROBES}.attention:AttentionQuadratic",
    "set": f"{_PROBES}.set:Set",
}
