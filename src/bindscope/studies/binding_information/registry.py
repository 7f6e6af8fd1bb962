"""Probe families by the name that a configuration gives them: ours, and those of other packages."""

from __future__ import annotations

from functools import cache
from typing import Any

from bindscope.core.registries import plugged_in, resolve

DECIDES_NOTHING = True

_FAMILIES = "bindscope.studies.binding_information.families"
# In figures, from the simplest family to the most expressive.
FAMILIES = {
    "linear": f"{_FAMILIES}:LinearProbe",
    "quadratic": f"{_FAMILIES}:QuadraticProbe",
    "quadratic_reuse": f"{_FAMILIES}:QuadraticReuseProbe",
    "multilinear_reuse": f"{_FAMILIES}:MultilinearReuseProbe",
    "dnn": f"{_FAMILIES}:DnnProbe",
    "pooled_quadratic": f"{_FAMILIES}:PooledQuadraticProbe",
    "attention_quadratic": f"{_FAMILIES}:AttentionProbe",
    "set": f"{_FAMILIES}:SetProbe",
}


def known_families() -> list[str]:
    """Return the names of all families: ours in their order, then those of other packages."""
    return list(dict.fromkeys([*FAMILIES, *sorted(plugged_in("probes"))]))


@cache
def options_of(family: str) -> Any:
    """Return the options class of a family, or None; ValueError for a wrong entry point."""
    if family in FAMILIES:
        return resolve(FAMILIES[family])
    if not (point := plugged_in("probes").get(family)):
        return None
    home = f"{point.dist.name if point.dist else point.module}, entry point {point.value}"
    try:
        options = point.load()
    except Exception as error:
        raise ValueError(
            f"the probe family {family!r} ({home}) cannot be imported: "
            f"{type(error).__name__}: {error}; correct or uninstall that package"
        ) from error
    descended = resolve(f"{_FAMILIES}:DescendedProbe")
    if not (isinstance(options, type) and issubclass(options, descended)):
        raise ValueError(
            f"the probe family {family!r} ({home}) is no class derived from `DescendedProbe`; "
            "docs/add_probe.md describes a family"
        )
    return options
