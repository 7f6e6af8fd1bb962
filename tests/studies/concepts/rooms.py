"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

DUAL = {"dual_encoder"}
GEOMETRY = {"dual_geometry"}
MODELS = {"table concept_models"}
GENERALIZATION = {"table binding_generalization"}
COVERAGE = {"figure concept_coverage"}
CORRELATION = {"figure concept_models"}
FIGURES = COVERAGE | CORRELATION
MEANS = {*COVERAGE, *MODELS, "report"}
ROW_READERS = TABLE_READERS = GENERALIZATION | MODELS | FIGURES
WITHOUT_RULES = GENERALIZATION | COVERAGE
SCHEMAS = GENERALIZATION | MODELS | FIGURES

# Modules of the shared rooms that this study's own steps hold.
SHARED: dict[str, set[str]] = {
    "codes/coverage.py": DUAL | GEOMETRY,
    "core/devices.py": DUAL,
    **{
        f"fitting/{name}.py": DUAL | GEOMETRY
        for name in ("adam", "checkpoint", "denormals", "descent", "generators", "schedules")
    },
    **{f"fitting/{name}.py": GEOMETRY for name in ("batches", "lbfgs")},
    "statistics/bootstrap.py": MEANS | DUAL | GEOMETRY | CORRELATION,
    "statistics/control_variates.py": GEOMETRY,
    "statistics/rank_correlation.py": CORRELATION,
    "tables/rules.py": MODELS | CORRELATION,
}

ROOMS: dict[str, set[str]] = {
    # All they decide stands in the spec, or is which code runs.
    **{f"{name}.py": set() for name in ("config", "dual_config", "products", "registry", "study")},
    # Of embeddings: the preset has no scenes in slots.
    **{
        f"{name}.py": set()
        for name in (
            "alignment",
            "analyses_config",
            "analyses_products",
            "analyses_schemas",
            "analyses_tables",
            "complexity_rows",
            "editing",
            "embedded",
            "mds",
            "pixels",  # no images
            "pixels_config",
            "planted",
            "removal",
            "rows",
        )
    },
    **{
        f"figures/{name}.py": set()
        for name in (
            "binding_complexity",
            "concept_editing",
            "concept_geometry",
            "concept_picture",
            "dual_complexity",
            "parts",
        )
    },
    "analyses_sections.py": {"report"},
    # What objects are, and when those of a scene are recognised.
    **{f"{name}.py": DUAL | GEOMETRY for name in ("scenes", "set_separation")},
    "analyses_findings.py": {"report"},
    "analyses_views.py": {"report"},
    **{
        f"{name}.py": GEOMETRY
        for name in (
            "decomposition",
            "least_squares",
            "pairing_bits",
            "recognition",
            "softmax",
            "vectors",
        )
    },
    "complexity/": GEOMETRY,
    "complexity/description_length.py": set(),
    "dual/": DUAL | GEOMETRY,
    **{f"dual/{name}.py": GEOMETRY for name in ("geometry", "given", "stored")},
    "embeddings_config.py": set(),
    **{f"dual/encoders/{name}.py": set() for name in ("mlp_set", "transformer")},  # of none here
    "findings.py": {"report"},
    "figures/concept_coverage.py": COVERAGE,
    "figures/concept_models.py": CORRELATION,
    "marks.py": SCHEMAS,
    "models_table.py": MODELS,
    "models_schema.py": MODELS | CORRELATION,
    "models_views.py": {*CORRELATION, "report"},
    "schemas.py": SCHEMAS,
    "tables.py": GENERALIZATION,
    "views.py": MEANS,
}

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "dual/encoders/product.py": (
        DUAL | GEOMETRY,
        {*DUAL, *GEOMETRY, *GENERALIZATION, *MODELS, *FIGURES, "report"},
    ),
    "figures/concept_coverage.py": (COVERAGE, {*COVERAGE, "report"}),
}
