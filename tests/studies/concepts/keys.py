"""Every key of this study's section: which rules run after a change; written by hand."""

DUAL = {"dual_encoder", "table", "figure"}

# A shared rule -> rules of this study that run after it: none, symbolic scenes need no dataset.
FOLLOWING: dict[str, set[str]] = {}

# Class.key -> (path in the study's part of the example, new value, all rules that run)
KEYS: dict[str, tuple[str, object, set[str]]] = {
    # What other entries ask for already is not made anew.
    "ConceptSection.embeddings": ("embeddings.1.models", ["hf"], set()),
    "Embeddings.name": ("embeddings.0.name", "other", set()),
    "Embeddings.datasets": ("embeddings.1.datasets", ["in-slots", "in-slots"], set()),
    "Embeddings.models": ("embeddings.0.models", ["hf", "hf"], set()),
    "Embeddings.texts": ("embeddings.0.texts", False, set()),
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
    **{
        f"{name}.{key}": (f"dual_encoders.{i}.encoder.{key}", value, DUAL)
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
