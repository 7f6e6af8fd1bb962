"""Every key of this study's section: which rules run after a change; written by hand."""

# A shared rule -> rules of this study that run after it
FOLLOWING = {
    "labels": {"fit", "null", "learning_curve"},
    "index": {"fit", "learning_curve"},
    "patches": {"attention"},
    "patches_temporary": {"attention"},
}

SHOWN = {"table", "figure"}
FIT = {"fit", *SHOWN}
FITS = {"null", *FIT}
LOOK = {"attention", *FITS}
CURVE = {"learning_curve", *SHOWN}
EVERY = {"learning_curve", *LOOK}
CODES = {"codes", "anchors", "labels"}

# Class.key -> (path in the study's part of the example, new value, all rules that run)
KEYS: dict[str, tuple[str, object, set[str]]] = {
    "Section.probes": ("probes.1.rank", 3, FITS),
    "Section.fits": ("fits.0.seed_blocks", [[0], [1]], FITS),
    "Section.information": ("information.bootstrap_samples", 60, EVERY),
    "FitBlock.name": ("fits.0.name", "other", set()),
    "FitBlock.datasets": ("fits.2.datasets", ["tiny", "hashed"],
                          {*CODES, "encoded", "index", "truth", *FITS}),
    "FitBlock.models": ("fits.0.models", ["vit", "wide", "timm"], FIT),
    "FitBlock.layers": ("fits.0.layers", "last", SHOWN),
    "FitBlock.tokens": ("fits.0.tokens", ["cls", "mean"], FIT),
    "FitBlock.probes": ("fits.0.probes", ["p1"], SHOWN),
    "FitBlock.seed_blocks": ("fits.0.seed_blocks", [[0], [1]], FITS),
    "FitBlock.controls": ("fits.0.controls", ["none", "shuffled_labels"], FIT),
    "Section.learning_curves": ("learning_curves.0.shares", [0.25, 0.5], CURVE),
    "LearningCurve.name": ("learning_curves.0.name", "other", set()),
    "LearningCurve.datasets": ("learning_curves.0.datasets", ["solids-raycast"],
                               {"pooled", "index", *CURVE}),
    "LearningCurve.models": ("learning_curves.0.models", ["timm"], CURVE),
    "LearningCurve.layers": ("learning_curves.0.layers", [0], CURVE),
    "LearningCurve.tokens": ("learning_curves.0.tokens", ["mean"], CURVE),
    "LearningCurve.probes": ("learning_curves.0.probes", ["p1"], CURVE),
    "LearningCurve.seed_blocks": ("learning_curves.0.seed_blocks", [[1]], CURVE),
    "LearningCurve.controls": ("learning_curves.0.controls", ["shuffled_labels"], CURVE),
    "LearningCurve.shares": ("learning_curves.0.shares", [0.25, 0.5], CURVE),
    "Information.bootstrap_samples": ("information.bootstrap_samples", 60, EVERY),
    "Information.bootstrap_seed": ("information.bootstrap_seed", 1, EVERY),
    "Section.families": ("families", [{"name": "other", "models": ["vit", "hf"]}],
                        {"figure"}),
    "ModelFamily.name": ("families.0.name", "other", {"figure"}),
    "ModelFamily.models": ("families.0.models", ["vit", "hf"], {"figure"}),
    "Section.groups": ("groups", [{"name": "other", "models": ["wide", "hf"]}], {"figure"}),
    "ModelGroup.name": ("groups.0.name", "other", {"figure"}),
    "ModelGroup.models": ("groups.0.models", ["wide", "hf"], {"figure"}),
}  # fmt: skip

COMMON_PROBE = {
    "name": "other", "protocol": "paper", "standardise": False, "conditioned": False, "steps": 7,
    "batch_size": 32, "targets": ["chained"], "l2": [0.5], "threads": 2, "device": "cuda",
    "memory_mb": 5,
}  # fmt: skip
RANKED = {"rank": 3, "learning_rate": 0.5, "weight_decay": 0.5}
PROBES: dict[str, tuple[int, dict[str, object]]] = {
    "LinearProbe": (0, {}),
    "QuadraticProbe": (1, RANKED),
    "AttentionProbe": (2, RANKED),
    "QuadraticReuseProbe": (3, RANKED),
    "MultilinearReuseProbe": (4, RANKED),
    "DnnProbe": (5, {"hidden": 3, "learning_rate": 0.5, "weight_decay": 0.5}),
    "SetProbe": (
        7,
        {"hidden": 3, "summed": 3, "dropout": 0.5, "learning_rate": 0.5, "weight_decay": 0.5},
    ),
}
for _cls, (_i, _own) in PROBES.items():
    _rules = {"AttentionProbe": EVERY, "LinearProbe": FITS | CURVE}.get(_cls, FITS)
    for _field, _value in {**COMMON_PROBE, **_own}.items():
        KEYS[f"{_cls}.{_field}"] = (f"probes.{_i}.{_field}", _value, _rules)
    _other = "dnn" if _cls == "LinearProbe" else "linear"
    if _cls not in ("AttentionProbe", "SetProbe"):
        KEYS[f"{_cls}.family"] = (f"probes.{_i}", {"name": f"p{_i}", "family": _other}, _rules)
    KEYS[f"{_cls}.targets"] = (
        f"probes.{_i}.targets",
        ["chained"],
        _rules - {"null", "attention", "learning_curve"},
    )
KEYS["SetProbe.family"] = ("fits.1.probes", ["attention"], SHOWN)
KEYS["AttentionProbe.family"] = ("fits.1.probes", ["p7"], SHOWN)
