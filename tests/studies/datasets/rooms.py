"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

TABLES = {"table priors"}
FIGURES = {"figure scenes"}

ROOMS: dict[str, set[str]] = {
    "config.py": set(),
    "figures/scenes.py": {"figure scenes"},
    "findings.py": {"report"},
    "products.py": set(),
    "study.py": set(),
    "tables.py": {"table priors", "report"},
}

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "figures/scenes.py": ({"figure scenes"}, {"figure scenes", "report"}),
}
