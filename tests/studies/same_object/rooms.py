"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

FIT, BASELINE = {"same_object_fit"}, {"same_object_baseline"}
MAPS, KNOWN, SAMPLES = {"same_object_maps"}, {"same_object_known"}, {"patch_samples"}
SAMPLED, GEOMETRY = {"sampled"}, {"same_object_geometry"}
PAIRS = FIT | BASELINE
STORES = SAMPLES | SAMPLED | KNOWN
OF_GEOMETRY = {f"figure same_object_{name}" for name in ("geometry", "distance", "cross_layers")}
GEOMETRY_TABLE = {"table same_object_geometry"}
TABLES = {"table same_object", "table same_object_strata"}
OF_TABLES = {f"figure same_object_{name}" for name in ("layers", "models", "strata")}
EDITED = {"figure same_object_attention", "figure same_object_edits"}
OF_EFFECTS = {f"table same_object_{name}" for name in ("ablation", "attention", "retrained")}
EFFECTS = {"same_object_effects"}
FIGURES = {*OF_TABLES, *OF_GEOMETRY, *EDITED, "figure same_object_maps"}
NAMED = {*OF_TABLES, "report"}
MEANS = {*NAMED, *OF_GEOMETRY, *EDITED}
ROW_READERS = TABLE_READERS = {*TABLES, *GEOMETRY_TABLE, *OF_EFFECTS, *MEANS}
OF_SCHEMA = GEOMETRY_TABLE | OF_GEOMETRY
SCHEMAS = {*TABLES, *OF_TABLES}
COLUMNS = SCHEMAS | OF_SCHEMA
TOKENS = PAIRS | GEOMETRY

# Modules of the shared rooms that this study's own steps hold.
SHARED: dict[str, set[str]] = {
    "activations/extraction.py": SAMPLED,
    "activations/images.py": SAMPLED,
    "activations/parts.py": TOKENS | SAMPLED,
    "activations/reader.py": TOKENS,
    "core/devices.py": PAIRS | SAMPLED | MAPS,
    "core/splits.py": SAMPLES | KNOWN | TOKENS,
    "core/store/listing.py": TOKENS,
    **dict.fromkeys(("core/store/background.py", "core/store/writer.py"), STORES),
    **{
        f"core/store/{name}.py": STORES | TOKENS | MAPS for name in ("dtypes", "manifest", "reader")
    },
    **{
        f"fitting/{name}.py": TOKENS
        for name in ("adam", "checkpoint", "denormals", "descent", "lbfgs")
    },
    **{f"fitting/{name}.py": TOKENS | KNOWN | MAPS for name in ("generators", "rows")},
    **{f"fitting/{name}.py": TOKENS | MAPS for name in ("standardise", "streaming")},
    "models/base.py": TOKENS | SAMPLED | MAPS,
    **{
        f"models/{name}.py": SAMPLED | MAPS
        for name in ("attention", "controlled", "edits", "images", "loading", "stream", "vit")
    },
    "scenes/patch_labels.py": SAMPLES | MAPS,
    "scenes/placement.py": SAMPLES,
    "statistics/bootstrap.py": {*TOKENS, *TABLES, *MEANS},
}

ROOMS: dict[str, set[str]] = {
    # All they decide stands in the spec, or is which code runs.
    **{
        f"{name}.py": set()
        for name in (
            "config", "effects_config", "effects_problems", "effects_products", "geometry_config",
            "planted_config", "probes_config", "products", "registry",
            "sampling_config", "study",
        )
    },
    "columns.py": COLUMNS,
    "comparisons.py": {"report"},
    "data.py": TOKENS | MAPS,
    **{
        f"{name}.py": EFFECTS
        for name in (
            "attention_measures", "effects", "effects_job", "effects_loss", "effects_retrained",
            "effects_rows",
            "fitted_scorer",
        )
    },
    "effects_findings.py": {"report"},
    "effects_schemas.py": OF_EFFECTS | EDITED,
    "effects_tables.py": OF_EFFECTS,
    "findings.py": {"report"},
    **{f"{name}.py": TOKENS for name in ("fit", "histogram", "job", "metrics", "strata")},
    "geometry/": GEOMETRY,
    "geometry/exponential.py": GEOMETRY | {"figure same_object_distance"},
    "geometry/findings.py": {"report"},
    "geometry/quantities.py": GEOMETRY | OF_SCHEMA | {"report"},
    "geometry/shown.py": {*OF_GEOMETRY, "report"},
    "geometry/table.py": OF_SCHEMA,
    "known.py": KNOWN,
    "leads.py": TABLES,
    "marks.py": {*TOKENS, *MAPS, *TABLES, *OF_EFFECTS, *MEANS},
    "names.py": NAMED,
    "patch_samples.py": SAMPLES,
    "planting.py": KNOWN,
    "published.py": {*EDITED, "figure same_object_models", "report"},
    "schemas.py": SCHEMAS,
    "score_maps.py": MAPS,
    "skipped.py": set(),  # no dataset is read here
    "stratum_names.py": {*TOKENS, *COLUMNS},
    "subspace.py": MAPS | EFFECTS,
    "tables.py": TABLES,
    "views.py": MEANS,
    "figures/same_object_ranks.py": set(),  # no probe of low rank here
    **{f"figures/{name.partition(' ')[2]}.py": {name} for name in FIGURES},
    "scorers/": set(),  # not of this configuration
    **{f"scorers/{name}.py": TOKENS for name in ("base", "convex", "forms")},
    **{f"scorers/{name}.py": FIT for name in ("diagonal", "linear", "quadratic")},
    "scorers/position.py": BASELINE,
}  # fmt: skip

# What jobs of edits hold besides their own modules: a model that runs, probes, and its own loss.
for _name in (
    "activations/images", "codes/counting", "codes/space", "core/devices",
    "core/splits", "core/store/dtypes", "core/store/manifest", "core/store/reader",
    "fitting/adam", "fitting/checkpoint", "fitting/denormals", "fitting/descent",
    "fitting/generators", "fitting/lbfgs", "fitting/rows", "fitting/standardise",
    "fitting/streaming", "models/attention", "models/base", "models/controlled", "models/edits",
    "models/images", "models/loading", "models/objectives/base", "models/objectives/codes",
    "models/objectives/evaluation", "models/pretraining_loss", "models/stream", "models/vit",
    "scenes/patch_labels",
    "statistics/bootstrap", "statistics/means",
):  # fmt: skip
    SHARED[f"{_name}.py"] = SHARED.get(f"{_name}.py", set()) | EFFECTS
# One of them fits a quadratic probe again.
for _name in ("data", "fit", "histogram", "marks", "metrics", "scorers/base",
              "scorers/convex", "scorers/diagonal", "scorers/forms", "scorers/linear",
              "scorers/quadratic", "strata", "stratum_names"):  # fmt: skip
    ROOMS[f"{_name}.py"] = ROOMS[f"{_name}.py"] | EFFECTS

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "scorers/quadratic.py": (
        FIT | EFFECTS,
        {
            *FIT,
            *MAPS,
            *GEOMETRY,
            *EFFECTS,
            *TABLES,
            *GEOMETRY_TABLE,
            *OF_EFFECTS,
            *FIGURES,
            "report",
        },
    ),
    "figures/same_object_layers.py": (
        {"figure same_object_layers"},
        {"figure same_object_layers", "report"},
    ),
}
