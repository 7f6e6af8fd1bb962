"""Every key of this study's section: which rules run after a change; written by hand."""

# It reads tables of other studies, and has no step of its own.
FOLLOWING: dict[str, set[str]] = {}
SHOWN = {"table", "figure"}

# Class.key -> (path in the study's part of the example, new value, all rules that run)
KEYS: dict[str, tuple[str, object, set[str]]] = {
    "Together.datasets": ("datasets", ["tiny", "own"], SHOWN),
    "Together.models": ("models", ["timm", "vit"], SHOWN),
    "Together.groups": ("groups", [], SHOWN),
    "Together.bootstrap_samples": ("bootstrap_samples", 200, {"figure"}),
    "Together.bootstrap_seed": ("bootstrap_seed", 1, {"figure"}),
    "Together.uses": ("uses.0.task", "other-slots", SHOWN),
    "ReadAndUsed.dataset": ("uses.0.dataset", "other-sprites", SHOWN),
    "ReadAndUsed.task": ("uses.0.task", "other-slots", SHOWN),
    "ReadAndUsed.models": ("uses.0.models", ["other-images"], SHOWN),
    "JoinedGroup.name": ("groups.0.name", "third", SHOWN),
    "JoinedGroup.models": ("groups.0.models", ["vit", "timm"], SHOWN),
}
