"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

TABLES, FIGURES = {"table together"}, {"figure together"}
SHOWN = {*FIGURES, "report"}
ALL = {*TABLES, *SHOWN}
ROW_READERS = TABLE_READERS = ALL
MEANS = SHOWN
QUOTED = FIGURES  # it writes numbers as the report does

# Modules of the shared rooms that this study's own products hold.
SHARED: dict[str, set[str]] = {
    "statistics/bootstrap.py": SHOWN,
    "statistics/rank_correlation.py": SHOWN,
    "statistics/verdict.py": SHOWN,
}

ROOMS: dict[str, set[str]] = {
    "config.py": set(),  # all it decides stands in the spec
    "figures/together.py": FIGURES,
    "findings.py": {"report"},
    "names.py": ALL,
    "sides.py": ALL,
    "study.py": set(),
    "table.py": TABLES | FIGURES,
    "use.py": {"report"},
    "use_findings.py": {"report"},
    "figures/pairing_use.py": set(),  # no toy in this preset
    "views.py": SHOWN,
    "words.py": SHOWN,
}

# Tables of other studies that this one reads: what changes them changes its own.
JOINS = {"table binding_information", "table same_object"}

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "sides.py": (ALL, ALL),
    "figures/together.py": (FIGURES, SHOWN),
    "findings.py": ({"report"}, {"report"}),
}
