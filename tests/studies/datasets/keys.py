"""What this study makes anew after a change of the shared sections; it has no section itself."""

STATISTICS, ASSIGNMENTS = {"scene_statistics"}, {"assignment_priors"}

# A shared rule, or keys as `Class.key` -> rules of this study
FOLLOWING = {
    **{f"{name}.*": STATISTICS for name in (
        "SolidsRenderer", "SolidsFixed", "RaycastBackend", "MitsubaBackend", "BlenderBackend",
    )},
    # all but its `kind`: scenes of another source have none
    **{f"{name}.[!k]*": ASSIGNMENTS for name in ("GenomeSource", "Download", "DrawnRelease")},
}  # fmt: skip

KEYS: dict[str, tuple[str, object, set[str]]] = {}
