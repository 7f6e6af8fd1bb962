"""Every key of this study's section: which rules run after a change; written by hand."""

# Scenes of this study are its own, so no shared rule comes before it.
FOLLOWING: dict[str, set[str]] = {}
SUITE = {"binding_id_interventions", "table", "figure"}
TRAINED = {"toy_vlm", *SUITE}

# Class.key -> (path in the study's part of the example, new value, all rules that run)
KEYS: dict[str, tuple[str, object, set[str]]] = {
    "BindingIdSection.tasks": ("tasks.0.rows", 5, SUITE),
    "BindingIdSection.oracles": ("oracles.0.noise", 0.5, SUITE),
    "BindingIdSection.suites": ("suites.0.resamples", 5, SUITE),
    "BindingIdSection.models": ("models.0.pad", 5, SUITE),
    "BindingIdSection.records": ("records.0.folder", "tests/fixtures/own_images", SUITE),
    "Records.name": ("records.0.name", "other", SUITE),
    "Records.folder": ("records.0.folder", "tests/fixtures/own_images", SUITE),
    "Records.file": ("records.0.file", "other.jsonl", SUITE),
    "Suite.records": ("suites.5.records", ["kitchen", "kitchen-again"], SUITE),
    "Suite.answer": ("suites.3.answer", "item", SUITE),
    "Suite.fit_to": ("suites.2.fit_to", "within", SUITE),
    "Suite.fit_steps": ("suites.2.fit_steps", 5, SUITE),
    # Of models, as oracles read no words.
    "Suite.text_only": ("suites.1.text_only", True, SUITE),
    "VisionLanguageModel.tokens": ("models.1.tokens", "box", SUITE),
    "VisionLanguageModel.mask_share": ("models.1.mask_share", 0.2, SUITE),
    "BindingIdSection.files": ("files.0.template", "short", {"shapes_task"}),
    **{
        f"ShapesTask.{key}": (f"tasks.0.{key}", value, SUITE)
        for key, value in {
            "layout": "grid", "order": "independent",
            "shared": "shape", "told_by": "size", "look": "varied", "clutter": 2, "rows": 5,
            "estimation_rows": 5, "seed": 1,
        }.items()
    },
    # Of the second task, which has slots enough.
    "ShapesTask.things": ("tasks.1.things", 3, {"shapes_task", *SUITE}),
    "ShapesTask.cutouts": ("tasks.3.cutouts.shadow", 0.1, SUITE),
    **{
        f"OwnCutouts.{key}": (f"tasks.3.cutouts.{key}", value, SUITE)
        for key, value in {
            "folder": "./tests/fixtures/own_cutouts", "file": "other.csv", "backgrounds": None,
            "shadow": 0.1,
        }.items()
    },
    "ShapesTask.name": ("tasks.0.name", "other", SUITE),
    "VisionLanguageModel.name": ("models.0.name", "other", {"weights", *SUITE}),
    "VisionLanguageModel.source": ("models.0.source", f"hf:llava-hf/other@{'1' * 40}",
                                   {"weights", *SUITE}),
    **{
        f"VisionLanguageModel.{key}": (f"models.0.{key}", value, SUITE)
        for key, value in {
            "device": "cuda", "precision": "bfloat16", "attention": "eager",
            "pad": 3, "border": "official", "answer": "bare", "keep": "all", "batch_size": 5,
        }.items()
    },
    "Toy.answers": ("toys.0.answers", ["item", "slot"], TRAINED),
    "Suite.toys": ("suites.2.toys", ["free", "absolute"], SUITE),
    "Toy.source": ("toys.2.source", "zoo:toy-interchange-1", SUITE),
    "BindingIdSection.toys": ("toys.0.seed", 5, TRAINED),
    **{
        f"Toy.{key}": (f"toys.0.{key}", value, TRAINED)
        for key, value in {
            "name": "other", "objective": "interchange", "positions": "absolute",
            "connector": "resampler", "tower": "siglip", "width": 48, "n_layers": 4,
            "tower_width": 32, "patch_px": 6, "training": {"steps": 5}, "seed": 1,
        }.items()
    },
    **{
        f"ToyTraining.{key}": (f"toys.0.training.{key}", value, TRAINED)
        for key, value in {
            "steps": 5, "batch_size": 5, "learning_rate": 0.5, "weight_decay": 0.5,
            "naming_until": 5, "grounding_until": 150, "copying_until": 500, "gates": False,
            "threads": 2, "device": "cuda",
        }.items()
    },
    **{
        f"TaskFiles.{key}": (f"files.0.{key}", value, {"shapes_task"})
        for key, value in {
            "name": "other", "task": "two-things", "template": "short", "answer": "slot",
            "text_only": True,
        }.items()
    },
    **{
        f"Oracle.{key}": (f"oracles.0.{key}", value, SUITE)
        for key, value in {
            "name": "other", "mechanism": "colour", "noise": 0.5, "seed": 1,
        }.items()
    },
    # Of the oracle that answers by turns.
    "Oracle.shares": ("oracles.2.shares", {"slot": 0.5}, SUITE),
    **{
        f"Shares.{key}": (f"oracles.2.shares.{key}", 0.1, SUITE)
        for key in ("slot", "colour", "gather")
    },
    **{
        f"Suite.{key}": (f"suites.0.{key}", value, SUITE)
        for key, value in {
            "name": "other", "tasks": ["nine-slots"],
            "oracles": ["by-colour"], "experiments": ["mean", "positions"],
            "head_layers": [0], "levels": ["slot"], "shares": [1.0], "scales": [1.0], "window": 2,
            "models": ["onevision"], "template": "short",
            "dimensions": [1], "subspaces_by": ["discriminant"], "coefficients": [1.0],
            "null_query": False, "resamples": 5, "batch_size": 5, "seed": 1,
            "threads": 2,
            "device": "cuda",
        }.items()
    },
}  # fmt: skip
