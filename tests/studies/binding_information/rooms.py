"""Which products hold which module of this study; see tests/workflow/test_code_keys.py."""

FITS = {"fit", "null"}
READERS = {*FITS, "attention"}  # what reads activations
INTERVALS = {*READERS, "figure structure"}  # what resamples scenes
TABLES = {"table binding_information", "table attention"}
_FROM_TABLE = {f"figure {name}" for name in ("tokens", "layers", "calibration", "structure")}
FIGURES = {*_FROM_TABLE, *(f"figure {name}" for name in ("attention", "training", "breakdown"))}
_BELOW_FITS = {*TABLES, *FIGURES, "attention", "report"}

ROOMS: dict[str, set[str]] = {
    "config.py": set(),
    "products.py": set(),
    "registry.py": set(),
    "study.py": set(),
    "attention_maps.py": {"attention"},
    "attention_share.py": {"attention", "figure attention"},
    "estimates.py": FITS,
    "flags.py": FITS,
    "fit.py": FITS,
    "scene_losses.py": {*FITS, "figure structure"},
    "sharing_cost.py": {"figure structure"},
    "probes/": READERS,
    "findings.py": {"report"},
    **{f"figures/{name.partition(' ')[2]}.py": {name} for name in FIGURES},
}

# module -> (products whose own code changes with it, products that the chain reaches)
EDITS: dict[str, tuple[set[str], set[str]]] = {
    "flags.py": (FITS, {*FITS, *_BELOW_FITS}),
    "figures/layers.py": ({"figure layers"}, {"figure layers", "report"}),
}
