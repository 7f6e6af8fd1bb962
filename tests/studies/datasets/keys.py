"""What this study makes anew after a change of the shared sections; it has no section itself."""

STATISTICS, ASSIGNMENTS = {"scene_statistics"}, {"assignment_priors"}

# A shared rule, or keys as `Class.key` -> rules of this study
FOLLOWING = {
    **{f"{name}.*": STATISTICS for name in (
        "SolidsFixed", "RaycastBackend", "MitsubaBackend", "BlenderBackend",
    )},
    **{f"{name}.*": ASSIGNMENTS for name in ("Download", "SyntheticRelease")},
    # all but `kind`: there are none of other scenes
    "SolidsRenderer.[!k]*": STATISTICS,
    "ClutterRenderer.[!k]*": STATISTICS,
    "GenomeSource.[!k]*": ASSIGNMENTS,
}  # fmt: skip

KEYS: dict[str, tuple[str, object, set[str]]] = {}
