"""Engines by the kind of model, and experiments by the name that a configuration gives them."""

from __future__ import annotations

from bindscope.core.registries import plugged_in

DECIDES_NOTHING = True

_HERE = "bindscope.studies.binding_id"

# kind -> ``load(model, rule, weights, device) -> (engine, pictures)``, of a `scenes.Rule`
ENGINES = {
    "oracle": f"{_HERE}.oracle:load",
    "published": f"{_HERE}.vlm.loading:load",
    "toy": f"{_HERE}.toys.adapter:load",
}
# Model types of transformers that `published` reads, in its order.
MODEL_TYPES = ("llava_onevision", "qwen2_vl")


def engine_reference(kind: str) -> str | None:
    """Return the ``"module:load"`` of an engine, ours or another package's; None: no such one."""
    point = plugged_in("engines").get(kind)
    return ENGINES.get(kind) or (point.value if point else None)


# ``ask_records(model, weights, spec, device) -> suite.Asked``: of a user's own photos.
RECORDS = f"{_HERE}.tasks.photos:ask_records"

_PLANS = f"{_HERE}.experiments.plans"
_MEANS = f"{_HERE}.experiments.means"
# name -> ``plan(batch) -> trials.Plan``, in the order of the tables.
EXPERIMENTS = {
    "factorizability": f"{_PLANS}:factorizability",
    "positions": f"{_PLANS}:rotations",
    "mean": f"{_MEANS}:mean_interventions",
    "signatures": f"{_PLANS}:signatures",
    "layers": f"{_PLANS}:layer_sweep",
    "pairing": f"{_PLANS}:pairing",
    "tokens": f"{_PLANS}:supports",
    "knockout": f"{_PLANS}:knockout",
    "heads": f"{_PLANS}:single_heads",
    "subspaces": f"{_MEANS}:subspaces",
    "mixture": f"{_PLANS}:mixture",
}

# name -> keys of a suite that the plan takes besides the batch.
OPTIONS: dict[str, tuple[str, ...]] = {
    "layers": ("window",), "pairing": ("window",), "heads": ("head_layers",),
}  # fmt: skip
ADDING = frozenset({"mean", "subspaces"})
"""Experiments of mean differences, which are estimated for them."""
ACCOUNTED = {
    "signatures": EXPERIMENTS["signatures"],
    "factorizability": EXPERIMENTS["factorizability"],
    "mean": f"{_MEANS}:slots_added",
}
"""Experiments in which accounts of binding disagree, with the plan of these conditions; each is
told about with all of them at hand (`answers.rows.DECIDING`)."""
# ``rows(answers, samples, seed)``: of experiment `mixture`.
MIXTURE_ROWS = f"{_HERE}.answers.mixture_fit:mixture_rows"
