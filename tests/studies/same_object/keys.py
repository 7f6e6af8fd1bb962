"""Every key of this study's section: which rules run after a change; written by hand."""

FITTED = {"same_object_fit"}
READ = {"sampled", *FITTED}
KNOWN = {"same_object_known", *FITTED}
MAPS = {"same_object_maps"}
GEOMETRY = {"same_object_geometry"}
OF_VIT = {*MAPS, *GEOMETRY}  # of its fits of `quadratic` on tiny
BASELINE = {"same_object_baseline"}
EFFECTS = {"same_object_effects"}
HEADS = {"refitted_heads"}  # of the model of the zoo, which is edited too
READ_OF_VIT = {*OF_VIT, *EFFECTS}
LABELLED = {"patch_samples", *READ, *KNOWN, *BASELINE}

# A shared rule -> rules of this study that run after it; maps and geometry are of the model with
# patch stores
FOLLOWING = {
    "scenes": LABELLED, "record_scenes": LABELLED, "pooled": READ, "patches": READ_OF_VIT,
    "Zoo.*": EFFECTS, "Zoo.name": HEADS, "Zoo.source": HEADS,
}  # fmt: skip

SHOWN = {"table", "figure"}
FIT = {*FITTED, *SHOWN}
BASE = {*BASELINE, *SHOWN}
EVERY = {*LABELLED, *READ_OF_VIT, *SHOWN}
CHANGED = {*EFFECTS, *SHOWN}
OTHER = {"models": ["timm"], "probes": ["quadratic"], "layers": [1], "directions": 4}
AGAIN = {"probes": ["quadratic3"], "edits": ["remove", "weights"], "train": 32, "val": 32}
EDITED = {"datasets": ["tiny"], "models": ["vit"], "probes": ["quadratic3"], "layers": [0],
          "directions": 4, "retrained": AGAIN}  # fmt: skip

# Class.key -> (path in the study's part of the example, new value, all rules that run)
KEYS: dict[str, tuple[str, object, set[str]]] = {
    "PairSection.sampling": ("sampling.seed", 1, EVERY),
    "PairSection.scenes": ("scenes", {"train": 64, "val": 32, "test": 32}, EVERY),
    "PairSection.probes": ("probes.2.steps", 3, {*FIT, *OF_VIT}),
    "PairSection.fits": ("fits.0.seed_blocks", [[0], [1]], FIT),
    "PairSection.planted": ("planted.0.dim", 64, {*KNOWN, *SHOWN}),
    "PairSection.maps": ("maps.scenes", 2, {*MAPS, "figure"}),
    "PairSection.geometry": ("geometry.cross_images", 2, {*GEOMETRY, *SHOWN}),
    "PairSection.intervals": ("intervals.bootstrap_samples", 60, {*FIT, *BASE, *READ_OF_VIT}),
    "PairSection.groups": ("groups", [], {"figure"}),
    "UsedScenes.train": ("scenes", {"train": 64, "val": 64, "test": 64}, EVERY),
    "UsedScenes.val": ("scenes", {"train": 64, "val": 32, "test": 64}, EVERY),
    "UsedScenes.test": ("scenes", {"train": 64, "val": 64, "test": 32}, EVERY),
    **{
        f"PatchSampling.{key}": (f"sampling.{key}", value, EVERY)
        for key, value in {
            "n_patches": 4, "background": "negative", "min_purity": 0.5, "stuff": "drop",
            "seed": 1, "class_groups": ["shape"],
        }.items()
    },
    "PairFits.name": ("fits.0.name", "other", set()),
    "PairFits.datasets": ("fits.2.datasets", ["tiny"], SHOWN),
    "PairFits.models": ("fits.1.models", ["timm"], SHOWN),
    "PairFits.layers": ("fits.0.layers", [0], {*READ, *READ_OF_VIT, *SHOWN}),
    "PairFits.seed_blocks": ("fits.0.seed_blocks", [[0], [1]], FIT),
    "PairFits.probes": ("fits.1.probes", ["quadratic"], set()),
    "PairFits.controls": ("fits.0.controls", ["none", "permuted_within"], FIT),
    "PairFits.layers_per_job": ("fits.0.layers_per_job", 1, {*READ, *READ_OF_VIT, *SHOWN}),
    "PairFits.patch_grid": ("fits.1.patch_grid", [2, 2],
                            {"patch_samples", *READ, *BASE}),
    "PairFits.windows": ("fits.2.windows", 2, {"patch_samples", *READ, *BASE}),
    "PlantedModel.datasets": ("planted.0.datasets", ["tiny"], SHOWN),
    "PlantedModel.probes": ("planted.0.probes", ["diagonal"], FIT),
    "PlantedModel.seed_blocks": ("planted.0.seed_blocks", [[0], [1]], FIT),
    "PlantedModel.controls": ("planted.0.controls", ["none", "permuted_within"], FIT),
    "PlantedModel.name": ("planted.0.name", "other", {*KNOWN, *SHOWN}),
    "PlantedModel.patch_grid": ("planted.0.patch_grid", [2, 2],
                                {"patch_samples", *KNOWN, *SHOWN}),
    **{
        f"PlantedModel.{key}": (f"planted.0.{key}", value, {*KNOWN, *SHOWN})
        for key, value in {
            "dim": 64, "rank": 2, "class_dims": 2, "place_dims": 2, "binding": 2.0,
            "classes": 2.0, "position": 2.0, "noise": 2.0, "nuisance": 2.0, "rotated": False,
            "shuffled": "image", "seed": 1,
        }.items()
    },
    "Maps.datasets": ("maps", {"datasets": ["own"], "models": ["timm"], "probes": ["quadratic"]},
                      {*MAPS, "figure"}),
    "Maps.models": ("maps.models", ["timm"], {*MAPS, "figure"}),
    "Maps.probes": ("maps.probes", ["quadratic2"], {*MAPS, "figure"}),
    "Maps.scenes": ("maps.scenes", 2, {*MAPS, "figure"}),
    "Geometry.datasets": ("geometry", {"datasets": ["own"], "models": ["timm"],
                                       "probes": ["quadratic"]}, {*GEOMETRY, *SHOWN}),
    "Geometry.models": ("geometry.models", ["timm"], {*GEOMETRY, *SHOWN}),
    "Geometry.probes": ("geometry.probes", ["quadratic2"], {*GEOMETRY, *SHOWN}),
    "Geometry.cross_images": ("geometry.cross_images", 2, {*GEOMETRY, *SHOWN}),
    "Geometry.cross_steps": ("geometry.cross_steps", 2, {*GEOMETRY, *SHOWN}),
    "PairSection.effects": ("effects", None, set()),  # nothing is left to run
    "Effects.datasets": ("effects", {**OTHER, "datasets": ["own"]}, CHANGED),
    "Effects.models": ("effects", {**OTHER, "datasets": ["tiny"]}, CHANGED),
    "Effects.layers": ("effects", {**OTHER, "datasets": ["tiny"]}, CHANGED),
    # What is taken by default: nothing is made anew, there is but one model less.
    "Effects.later": ("effects", {**EDITED, "later": 1}, SHOWN),
    **{
        f"Effects.{key}": (f"effects.{key}", value, CHANGED)
        for key, value in {
            "probes": ["quadratic"], "directions": 2, "shuffle": [0.25], "inject": [0.25],
            "controls": ["random"], "scenes": 16, "seed": 1, "retrained": None,
        }.items()
    },
    "Effects.weights": ("effects", {**EDITED, "weights": False, "retrained": None}, CHANGED),
    "Effects.refit": ("effects.refit", 5, {*CHANGED, *HEADS}),
    **{
        f"Retrained.{key}": (f"effects.retrained.{key}", value, CHANGED)
        for key, value in {
            "probes": ["diagonal"], "edits": ["shuffle"], "train": 16, "val": 16, "own_heads": 2,
        }.items()
    },
    "Intervals.bootstrap_samples": ("intervals.bootstrap_samples", 60, {*FIT, *BASE, *READ_OF_VIT}),
    "Intervals.bootstrap_seed": ("intervals.bootstrap_seed", 1, {*FIT, *BASE, *READ_OF_VIT}),
    "SeedGroup.name": ("groups.0.name", "other", {"figure"}),
    "SeedGroup.models": ("groups.0.models", ["vit"], {"figure"}),
}  # fmt: skip

JOB = {"name": "other", "threads": 2, "device": "cuda", "memory_mb": 5}
OF_TOKENS = {**JOB, "token_norm": "l2"}
CONVEX = {**OF_TOKENS, "l2": [0.5], "steps": 3}
DESCENDED = {
    **OF_TOKENS, "steps": 3, "batch_images": 3, "learning_rate": 0.5, "weight_decay": 0.5,
}  # fmt: skip
SIMILAR = {**OF_TOKENS, "standardise": True, "temperature": False}
PROBES: dict[str, tuple[int, dict[str, object]]] = {
    "LinearScorer": (0, CONVEX),
    "DiagonalScorer": (1, CONVEX),
    "QuadraticScorer": (2, CONVEX),
    "LowRankScorer": (3, {**CONVEX, "ranks": [3]}),
    "ClassScorer": (4, CONVEX),
    "ClassPosition": (
        5, {**CONVEX, "classes": "true", "learner": "logistic", "pairs": 3, "iterations": 3}
    ),
    "IdentityScorer": (6, {**DESCENDED, "queries": 3, "criterion": "masks"}),
    "MlpScorer": (7, {**DESCENDED, "hidden": 3}),
    "DotScorer": (8, SIMILAR),
    "CosineScorer": (9, SIMILAR),
    "PositionScorer": (10, {**JOB, "l2": [0.5], "steps": 3}),
    "Baseline": (11, {**JOB, "kind": "class_oracle"}),
    "SelfAttentionScorer": (
        15, {**DESCENDED, "heads": 3, "width": 3, "l2": [0.5], "quadratic_steps": 3}
    ),
    "QuadraticPositionScorer": (14, {**CONVEX, "position_l2": [0.5]}),
}  # fmt: skip
for _cls, (_i, _options) in PROBES.items():
    _reads_nothing = _cls in ("PositionScorer", "Baseline")
    _rules = BASE if _reads_nothing else FIT | OF_VIT if _cls == "QuadraticScorer" else FIT
    for _field, _value in _options.items():
        KEYS[f"{_cls}.{_field}"] = (f"probes.{_i}.{_field}", _value, _rules)
    _other = "linear" if _cls != "LinearScorer" else "diagonal"
    _name = ("linear", "diagonal", "quadratic", "ranks", "class", "class-position", "identity",
             "perceptron", "dot", "cosine", "position", "majority", "quadratic2", "quadratic3",
             "quadratic-position", "with-attention")[_i]  # fmt: skip
    if _cls == "QuadraticScorer":
        _i, _name = 12, "quadratic2"  # one of which nothing else is made
    KEYS[f"{_cls}.family"] = (f"probes.{_i}", {"name": _name, "family": _other}, FIT)
