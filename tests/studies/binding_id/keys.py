"""Every key of this study's section: which rules run after a change; written by hand."""

# Scenes of this study are its own, so no shared rule comes before it.
FOLLOWING: dict[str, set[str]] = {}
SUITE = {"binding_id_interventions", "table", "figure"}

# Class.key -> (path in the study's part of the example, new value, all rules that run)
KEYS: dict[str, tuple[str, object, set[str]]] = {
    "BindingIdSection.tasks": ("tasks.0.rows", 5, SUITE),
    "BindingIdSection.oracles": ("oracles.0.noise", 0.5, SUITE),
    "BindingIdSection.suites": ("suites.0.resamples", 5, SUITE),
    **{
        f"ShapesTask.{key}": (f"tasks.0.{key}", value, SUITE)
        for key, value in {
            "name": "other", "layout": "grid", "things": 3, "order": "independent",
            "shared": "shape", "told_by": "size", "rows": 5, "estimation_rows": 5, "seed": 1,
        }.items()
    },
    **{
        f"Oracle.{key}": (f"oracles.0.{key}", value, SUITE)
        for key, value in {
            "name": "other", "mechanism": "colour", "noise": 0.5, "seed": 1,
        }.items()
    },
    **{
        f"Suite.{key}": (f"suites.0.{key}", value, SUITE)
        for key, value in {
            "name": "other", "tasks": ["nine-slots"],
            "oracles": ["by-colour"], "experiments": ["mean", "positions"],
            "levels": ["slot"], "shares": [1.0], "scales": [1.0], "window": 2,
            "null_query": False, "resamples": 5, "batch_size": 5, "seed": 1, "threads": 2,
            "device": "cuda",
        }.items()
    },
}  # fmt: skip
