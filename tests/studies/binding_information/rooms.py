"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

FITS = {"fit", "null", "learning_curve"}
READERS = {*FITS, "attention"}  # what reads activations
TABLES = {"table binding_information", "table attention", "table learning_curve"}


def figures(*names: str) -> set[str]:
    return {f"figure {name}" for name in names}


# What this preset draws, by what it reads: the study's table, histories of fits, stored maps.
_OF_TABLE = figures(
    "tokens",
    "layers",
    "calibration",
    "structure",
    "breakdown",
    "parts",
    "parts_layers",
    "histogram",
)
_OF_FITS = figures("training")
_OF_MAPS = figures("attention")
_OF_CURVES = figures("learning_curve")
FIGURES = _OF_TABLE | _OF_FITS | _OF_MAPS | _OF_CURVES
_SHOWN = {*_OF_TABLE, *_OF_FITS, *_OF_CURVES, "report"}
INTERVALS = {*READERS, *_SHOWN}  # what resamples scenes, and what quotes rows
QUOTED = figures("parts", "parts_layers")
CONTROL_VARIATES = FITS
EXTRAPOLATION = {"learning_curve"}
VALUE_NAMES = figures("breakdown")
MEANS = _SHOWN
ROW_READERS = {*TABLES, *_SHOWN}
TABLE_READERS = {*TABLES, *_OF_TABLE, *_OF_CURVES, "report"}

ROOMS: dict[str, set[str]] = {
    # All they decide stands in the spec, or is which code runs.
    **{f"{name}.py": set() for name in ("config", "products", "registry", "study")},
    "attention_maps.py": {"attention"},
    "learning_curve.py": {"learning_curve"},
    **dict.fromkeys(("estimates.py", "fit.py"), FITS),
    "flags.py": {*FITS, *TABLES, *_SHOWN},
    "missing.py": {*FITS, *TABLES, *_SHOWN},
    "best.py": {*TABLES, *_SHOWN},
    "probes/": FITS,
    **{f"probes/{name}.py": READERS for name in ("base", "module", "weights")},
    "probes/attention.py": READERS - {"learning_curve"},  # this preset's curve is linear
    "probes/quadratic.py": FITS - {"learning_curve"},
    "probes/maps.py": {"attention"},
    **{f"probes/{name}.py": set() for name in ("dnn", "multilinear", "set")},  # not of this preset
    **{f"{name}.py": {*TABLES, *_SHOWN} for name in ("columns", "rules")},
    "schemas.py": {*TABLES, *_OF_TABLE, *_OF_CURVES},
    "tables.py": TABLES,
    "views.py": _SHOWN,
    "names.py": _SHOWN,
    "published.py": {*figures("tokens", "structure", "histogram"), "report"},
    **{f"{name}.py": {"report"} for name in ("comparisons", "findings", "sentences", "trust")},
    "quotes.py": {*QUOTED, "report"},
    **{f"{name}.py": set() for name in ("measure", "measured")},  # no step of the workflow
    "scene_losses.py": {*FITS, *figures("structure")},
    "sharing_cost.py": figures("structure"),
    **{f"figures/{name.partition(' ')[2]}.py": {name} for name in FIGURES},
    "figures/assumed.py": figures("tokens", "layers", "structure", "breakdown") | QUOTED,
    "figures/bars.py": figures("tokens"),
    "figures/curves.py": figures("layers"),
    "figures/reading.py": _OF_TABLE,
    # This preset has nothing that these figures show.
    **{
        f"figures/{name}.py": set() for name in ("complexity", "natural", "occlusion", "resolution")
    },
}

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "flags.py": (
        {*FITS, *TABLES, *_SHOWN},
        {*FITS, *TABLES, *FIGURES, "attention", "report"},
    ),
    "figures/layers.py": (figures("layers"), {*figures("layers"), "report"}),
}
