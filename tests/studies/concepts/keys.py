"""Every key of this study's section: which rules run after a change; written by hand."""

DUAL = {"dual_encoder", "dual_geometry", "table", "figure"}  # of the first entry, with geometry
PLAIN = DUAL - {"dual_geometry"}
PIXELS = {"pixel_encoder", "table", "figure"}

SHOWN = {"table", "figure"}
MEASURED = {"concept_geometry", "concept_editing"}
COMPLEXITY = {"binding_complexity", *SHOWN}
PLANTED = {"planted_embeddings", *MEASURED, "binding_complexity"}

# A shared rule -> rules of this study that run after it; dual encoders need no dataset.
FOLLOWING: dict[str, set[str]] = {
    "text_embeddings": MEASURED, "joint": MEASURED, "EnumeratedSplit.*": PLANTED,
}  # fmt: skip

# Class.key -> (path in the study's part of the example, new value, all rules that run)
KEYS: dict[str, tuple[str, object, set[str]]] = {
    # What other entries ask for already is not made anew.
    "ConceptSection.embeddings": ("embeddings.1.models", ["hf"], set()),
    "Embeddings.name": ("embeddings.0.name", "other", set()),
    "Embeddings.datasets": ("embeddings.1.datasets", ["in-slots", "in-slots"], set()),
    "Embeddings.models": ("embeddings.0.models", ["hf", "hf"], set()),
    "Embeddings.texts": ("embeddings.0.texts", False, set()),
    "ConceptSection.planted": ("planted.0.dim", 5, {*PLANTED, *SHOWN}),
    **{
        f"PlantedEncoder.{key}": (f"planted.0.{key}", value, {*PLANTED, *SHOWN})
        for key, value in {
            "kind": "lookup", "dim": 5, "noise": 0.5, "slot_effect": 0.5, "seed": 1,
        }.items()
    },
    "PlantedEncoder.name": ("planted.0.name", "other", {*PLANTED, *SHOWN}),
    "ConceptSection.analyses": ("analyses.0.strengths", [0.5], {"concept_editing", *SHOWN}),
    "Analysis.name": ("analyses.0.name", "other", {*MEASURED, *COMPLEXITY}),
    "Analysis.datasets": ("analyses.0.datasets", ["in-slots", "in-slots"], set()),
    "Analysis.planted": ("analyses.0.planted", ["known-sums", "known-sums"], set()),
    "Analysis.models": ("analyses.0.models", ["hf"], {*MEASURED, *COMPLEXITY}),
    "Analysis.vectors": ("analyses.1.vectors", ["mean"], {*MEASURED, *SHOWN}),
    "Analysis.estimators": ("analyses.0.estimators", ["ols"], {*MEASURED, *SHOWN}),
    "Analysis.singles": ("analyses.1.singles", None, {"concept_geometry", *SHOWN}),
    "Analysis.dual_encoders": ("analyses.2.dual_encoders", ["product"], COMPLEXITY),
    "Analysis.dual_objects": ("analyses.2.dual_objects", 8, COMPLEXITY),
    "Analysis.picture": ("analyses.0.picture", True, {"concept_geometry", *SHOWN}),
    "Analysis.strengths": ("analyses.0.strengths", [0.5], {"concept_editing", *SHOWN}),
    "Analysis.complexity": ("analyses.0.complexity.seeds", [7], COMPLEXITY),
    **{
        f"Complexity.{key}": (f"analyses.0.complexity.{key}", value, COMPLEXITY)
        for key, value in {
            "approximators": [{"name": "trees", "kind": "forest"}], "coverages": [0.25],
            "seeds": [7], "validation_share": 0.25, "description": True,
        }.items()
    },
    **{
        f"ApproximatorOptions.{key}": (
            f"analyses.0.complexity.approximators.0.{key}", value, COMPLEXITY
        )
        for key, value in {
            "name": "other", "kind": "forest", "widths": [5], "rank": 5, "steps": 5,
            "learning_rate": 0.5, "starts": 5, "components": 5, "rounds": 5,
        }.items()
    },
    "ConceptSection.dual_encoders": ("dual_encoders.0.coverages", [0.25], DUAL),
    **{
        f"DualEncoders.{key}": (f"dual_encoders.0.{key}", value, DUAL)
        for key, value in {
            "name": "other", "encoder": {"kind": "product", "dim": 3}, "spaces": [[5, 5]],
            "query_pools": ["all"], "coverages": [0.25], "seeds": [0, 1],
            "require_value_coverage": False, "validation_share": 0.25,
            "training": {"steps": 3}, "evaluation": {"max_scenes": 3}, "threads": 2,
            "device": "cuda",
        }.items()
    },
    "DualEncoders.geometry": ("dual_encoders.1.geometry", True, DUAL - {"dual_encoder"}),
    "ConceptSection.pixel_encoders": ("pixel_encoders.0.candidates", [], PIXELS),
    "PixelEncoders.name": ("pixel_encoders.0.name", "other", PIXELS),
    "PixelEncoders.dataset": ("pixel_encoders.0.models", ["captioned", "captioned"], set()),
    "PixelEncoders.models": ("pixel_encoders.0.models", ["captioned", "captioned"], set()),
    "PixelEncoders.candidates": ("pixel_encoders.0.candidates", ["sampled"], PIXELS),
    **{
        f"{name}.{key}": (
            f"dual_encoders.{i}.encoder.{key}", value,
            # An analysis reads the second, and the first has its geometry.
            {*PLAIN, *COMPLEXITY} if name == "MlpSetOptions" else PLAIN if i else DUAL,
        )
        for i, (name, options) in enumerate({
            "ProductOptions": {"kind": "mlp_set", "dim": 3, "mixing": True},
            "MlpSetOptions": {"kind": "transformer", "dim": 3, "hidden": 3},
            "TransformerOptions": {
                "kind": "product", "width": 8, "layers": 1, "heads": 2, "hidden": 3, "dim": 3,
            },
        }.items())
        for key, value in options.items()
    },
    **{
        f"DualTraining.{key}": (f"dual_encoders.0.training.{key}", value, DUAL)
        for key, value in {
            "steps": 3, "batch_size": 3, "objects_per_scene": [1, 2], "learning_rate": 0.5,
            "weight_decay": 0.5, "initial_scale": 2.0, "max_scale": 20.0, "loss": "symmetric",
            "queries": "batch", "max_objects": 3, "swaps": 2, "random": 2,
        }.items()
    },
    **{
        f"DualEvaluation.{key}": (f"dual_encoders.0.evaluation.{key}", value, DUAL)
        for key, value in {
            "candidates": ["swaps"], "selected": ["final", "validation"], "max_scenes": 3,
        }.items()
    },
}  # fmt: skip
