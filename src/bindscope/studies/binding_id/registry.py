"""Engines by the kind of model, and experiments by the name that a configuration gives them."""

from __future__ import annotations

_HERE = "bindscope.studies.binding_id"

# kind -> ``load(model, reading, weights) -> (engine, pictures)``; see `reading`.
ENGINES = {
    "oracle": f"{_HERE}.oracles.oracle:load",
    "mixed_oracle": f"{_HERE}.oracles.mixed_oracle:load",
    "published": f"{_HERE}.published:load",
    "toy": f"{_HERE}.toys.loading:load",
}

# ``ask_records(model, weights, spec) -> suite.Results``: of a user's own photos.
RECORDS = f"{_HERE}.tasks.photos:ask_records"

_EXPERIMENTS = f"{_HERE}.experiments.core"
_MEANS = f"{_HERE}.experiments.mean_interventions"
# name -> ``plan(batch) -> trials.Plan``, in the order of the tables.
EXPERIMENTS = {
    "factorizability": f"{_EXPERIMENTS}:factorizability",
    "positions": f"{_EXPERIMENTS}:rotations",
    "mean": f"{_MEANS}:mean_interventions",
    "nulls": f"{_MEANS}:stronger_nulls",
    "doses": f"{_MEANS}:doses",
    "transfer": f"{_MEANS}:transfer",
    "signatures": f"{_EXPERIMENTS}:signatures",
    "layers": f"{_EXPERIMENTS}:layer_sweep",
    "pairing": f"{_EXPERIMENTS}:pairing",
    "tokens": f"{_EXPERIMENTS}:supports",
    "knockout": f"{_EXPERIMENTS}:knockout",
    "heads": f"{_HERE}.experiments.heads:single_heads",
    "subspaces": f"{_HERE}.experiments.subspaces:subspaces",
    "mixture": f"{_HERE}.experiments.mixture:mixture",
}

# ``rows(answers, samples, seed)``: of the table that experiment `mixture` has.
MIXTURE_ROWS = f"{_HERE}.answers.mixture_fit:mixture_rows"
