"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

DUAL = {"dual_encoder"}
GENERALIZATION = {"table binding_generalization"}
COVERAGE = {"figure concept_coverage"}
FIGURES = COVERAGE
MEANS = {*COVERAGE, "report"}
ROW_READERS = TABLE_READERS = GENERALIZATION | COVERAGE
WITHOUT_RULES = GENERALIZATION | COVERAGE
SCHEMAS = GENERALIZATION | COVERAGE

# Modules of the shared rooms that this study's own steps hold.
SHARED: dict[str, set[str]] = {
    "core/devices.py": DUAL,
    **{
        f"fitting/{name}.py": DUAL
        for name in ("adam", "checkpoint", "denormals", "descent", "generators", "schedules")
    },
    "statistics/bootstrap.py": MEANS | DUAL,
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
            "decomposition",
            "editing",
            "embedded",
            "least_squares",
            "mds",
            "planted",
            "recognition",
            "removal",
            "rows",
            "softmax",
            "vectors",
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
    **{f"{name}.py": DUAL for name in ("scenes", "set_separation")},
    "analyses_findings.py": {"report"},
    "analyses_views.py": {"report"},
    "complexity/": set(),
    "dual/": DUAL,
    "embeddings_config.py": set(),
    "dual/stored.py": set(),  # for who analyses trained encoders
    **{f"dual/encoders/{name}.py": set() for name in ("mlp_set", "transformer")},  # of none here
    "findings.py": {"report"},
    "figures/concept_coverage.py": COVERAGE,
    "marks.py": SCHEMAS,
    "schemas.py": SCHEMAS,
    "tables.py": GENERALIZATION,
    "views.py": MEANS,
}

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "dual/encoders/product.py": (DUAL, {*DUAL, *GENERALIZATION, *COVERAGE, "report"}),
    "figures/concept_coverage.py": (COVERAGE, {*COVERAGE, "report"}),
}
