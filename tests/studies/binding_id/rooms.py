"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

STEP = {"binding_id_interventions"}
TABLES = {f"table binding_id{which}" for which in ("", "_positions", "_vectors")}
MAIN = {f"figure binding_id{which}" for which in ("", "_mean", "_sweeps")}
MOVED = {"figure binding_id_positions"}
FIGURES = MAIN | MOVED
SCHEMAS = ROW_READERS = TABLE_READERS = WITHOUT_RULES = TABLES | FIGURES

# Modules of the shared rooms that this study's own steps hold.
SHARED: dict[str, set[str]] = {
    "fitting/generators.py": STEP,
    "scenes/sprite_palette.py": STEP,
    **{f"statistics/{name}.py": STEP for name in ("bootstrap", "multiple_tests", "proportions")},
}

ROOMS: dict[str, set[str]] = {
    # All they decide stands in the spec, or is which code runs.
    **{
        f"{name}.py": set()
        for name in ("config", "cutouts_config", "cutouts_products", "files_config",
                     "files_products", "products", "registry", "study", "toys_config",
                     "toys_products")
    },
    **{f"{name}.py": STEP for name in ("engine", "job", "reading", "suite")},
    **{
        f"tasks/{name}.py": STEP
        for name in ("cutouts", "layouts", "prompts", "scenes", "task", "vocabulary")
    },
    **{
        f"experiments/{name}.py": STEP
        for name in ("core", "estimates", "heads", "interventions", "mean_interventions", "spans",
                     "trials")
    },
    **{f"oracles/{name}.py": STEP for name in ("oracle", "oracle_attention")},
    **{f"answers/{name}.py": STEP for name in ("metrics", "reading_out", "rows")},
    "names.py": {*SCHEMAS, "report"},
    "mixture_names.py": {*SCHEMAS, "report"},
    "schemas.py": SCHEMAS,
    "tables.py": TABLES,
    "views.py": {*FIGURES, "report"},
    "answers/mechanisms.py": {"report"},
    "answers/routes.py": {"report"},
    "findings.py": {"report"},
    **{
        f"figures/binding_id{which}.py": {f"figure binding_id{which}"}
        for which in ("", "_mean", "_sweeps", "_positions")
    },
    # Of models that read images and words, and of files: none in this preset.
    "published.py": set(),
    **{
        f"tasks/{name}.py": set()
        for name in ("composites", "cutouts_manifest", "images", "looks", "photos", "pictures",
                     "records", "shapes_task")
    },
    # Of experiments, and an oracle, that this preset does not have.
    **{f"experiments/{name}.py": set() for name in ("subspaces", "discriminant", "mixture")},
    "oracles/mixed_oracle.py": set(),
    "answers/mixture_fit.py": set(),
    **{f"figures/binding_id_{name}.py": set() for name in ("subspaces", "heads", "mixture")},
    "answers/mixture_findings.py": {"report"},
    "vlm/": set(),
    "toys/": set(),
}  # fmt: skip

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "oracles/oracle.py": (STEP, {*STEP, *TABLES, *FIGURES, "report"}),
    "figures/binding_id_mean.py": (
        {"figure binding_id_mean"}, {"figure binding_id_mean", "report"},
    ),
}  # fmt: skip
