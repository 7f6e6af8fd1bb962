"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

FIT, BASELINE = {"same_object_fit"}, {"same_object_baseline"}
MAPS, KNOWN, SAMPLES = {"same_object_maps"}, {"same_object_known"}, {"patch_samples"}
SAMPLED = {"sampled"}
PAIRS = FIT | BASELINE
STORES = SAMPLES | SAMPLED | KNOWN
TABLES = {"table same_object", "table same_object_strata"}
OF_TABLES = {f"figure same_object_{name}" for name in ("layers", "models", "strata")}
FIGURES = {*OF_TABLES, "figure same_object_maps"}
MEANS = {*OF_TABLES, "report"}
ROW_READERS = TABLE_READERS = {*TABLES, *MEANS}
SCHEMAS = {*TABLES, *OF_TABLES}

# Modules of the shared rooms that this study's own steps hold.
SHARED: dict[str, set[str]] = {
    "activations/extraction.py": SAMPLED,
    "activations/reader.py": PAIRS,
    "core/devices.py": PAIRS | SAMPLED | MAPS,
    "core/splits.py": SAMPLES | KNOWN | PAIRS,
    "core/store/listing.py": PAIRS,
    **dict.fromkeys(("core/store/background.py", "core/store/writer.py"), STORES),
    **{f"core/store/{name}.py": STORES | PAIRS | MAPS for name in ("dtypes", "manifest", "reader")},
    **{
        f"fitting/{name}.py": PAIRS
        for name in ("adam", "checkpoint", "denormals", "descent", "lbfgs")
    },
    **{f"fitting/{name}.py": PAIRS | KNOWN | MAPS for name in ("generators", "rows")},
    **{f"fitting/{name}.py": PAIRS | MAPS for name in ("standardise", "streaming")},
    "models/base.py": PAIRS | SAMPLED | MAPS,
    **{
        f"models/{name}.py": SAMPLED | MAPS
        for name in ("attention", "controlled", "edits", "images", "loading", "stream", "vit")
    },
    "scenes/placement.py": SAMPLES,
    "statistics/bootstrap.py": {*PAIRS, *TABLES, *MEANS},
}

ROOMS: dict[str, set[str]] = {
    # All they decide stands in the spec, or is which code runs.
    **{
        f"{name}.py": set()
        for name in (
            "config", "planted_config", "probes_config", "products", "registry",
            "sampling_config", "study",
        )
    },
    "columns.py": SCHEMAS,
    "comparisons.py": {"report"},
    "data.py": PAIRS | MAPS,
    "findings.py": {"report"},
    **{f"{name}.py": PAIRS for name in ("fit", "histogram", "job", "metrics", "strata")},
    "known.py": KNOWN,
    "leads.py": TABLES,
    "marks.py": {*PAIRS, *MAPS, *TABLES, *MEANS},
    "names.py": MEANS,
    "patch_labels.py": SAMPLES | MAPS,
    "patch_samples.py": SAMPLES,
    "planting.py": KNOWN,
    "published.py": {"figure same_object_models", "report"},
    "schemas.py": SCHEMAS,
    "score_maps.py": MAPS,
    "stratum_names.py": {*PAIRS, *SCHEMAS},
    "tables.py": TABLES,
    "views.py": MEANS,
    "figures/same_object_ranks.py": set(),  # no probe of low rank here
    **{f"figures/{name.partition(' ')[2]}.py": {name} for name in FIGURES},
    "scorers/": set(),  # not of this configuration
    **{f"scorers/{name}.py": PAIRS for name in ("base", "convex", "forms")},
    **{f"scorers/{name}.py": FIT for name in ("diagonal", "linear", "quadratic")},
    "scorers/position.py": BASELINE,
}  # fmt: skip

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "scorers/quadratic.py": (FIT, {*FIT, *MAPS, *TABLES, *FIGURES, "report"}),
    "figures/same_object_layers.py": (
        {"figure same_object_layers"},
        {"figure same_object_layers", "report"},
    ),
}
