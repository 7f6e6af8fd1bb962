"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

TABLES = {"table priors"}
FIGURES = {"figure scenes"}
VALUE_NAMES = FIGURES
ROW_READERS = TABLE_READERS = TABLES

ROOMS: dict[str, set[str]] = {
    "figures/scenes.py": {"figure scenes"},
    "findings.py": {"report"},
    "products.py": set(),
    "study.py": set(),
    "tables.py": {"table priors"},
}

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "figures/scenes.py": ({"figure scenes"}, {"figure scenes", "report"}),
}
