"""The scripts of the workflow as modules: importable and runnable without Snakemake."""

from __future__ import annotations

from jobs_by_hand import SCRIPTS, loaded, loaded_by_scripts

_STORE = {"numpy", "zarr"}
_TABLE = {"numpy", "pandas", "pyarrow"}
_TORCH = {"numpy", "torch", "zarr"}
_WEIGHTS = {*_TORCH, "safetensors"}
_FITTED = {*_WEIGHTS, "scipy"}
# The heavy packages that scripts' imports may load; a job loads its model's or backend's besides.
_ALLOWED: tuple[tuple[str, set[str]], ...] = (
    ("download", set()),
    ("weights", {"huggingface_hub", "safetensors"}),
    ("index labels priors", {"numpy"}),
    ("truth", {"numpy", "scipy"}),
    ("assignment_priors", {"numpy", "pyarrow", "scipy"}),
    ("records", {"numpy", "pyarrow", "PIL"}),  # decodes every image
    ("anchors codes counted_anchors counted_priors scene_statistics scenes", _STORE),
    ("encoded patch_samples", {*_STORE, "scipy"}),
    ("captions record_codes", {*_STORE, "pyarrow"}),
    ("record_scenes", {*_STORE, "pyarrow", "PIL"}),
    ("binding_id_estimates binding_id_interventions", {*_STORE, "scipy", "safetensors"}),
    ("concept_geometry", {*_TORCH, "scipy"}),
    ("text_embeddings", {*_TORCH, "pyarrow"}),
    ("extract joint sampled", _TORCH),
    ("attention fit learning_curve training", _WEIGHTS),
    ("binding_complexity dual_encoder", _FITTED),
    ("same_object_effects same_object_fit same_object_geometry same_object_maps", _FITTED),
    ("toy_vlm", {*_FITTED, "transformers"}),
    ("table", _TABLE),
    ("report", {*_TABLE, "jinja2"}),
    ("figure", {*_TABLE, "matplotlib", "PIL", "safetensors"}),
)
ALLOWED = {name: packages for names, packages in _ALLOWED for name in names.split()}


def test_every_script_says_what_it_may_load() -> None:
    assert ALLOWED.keys() == {path.stem for path in SCRIPTS.glob("*.py")}


def test_scripts_load_no_heavy_package_that_they_do_not_need() -> None:
    assert loaded_by_scripts(ALLOWED) == {name: set() for name in ALLOWED}


def test_importing_the_library_is_light() -> None:
    assert loaded("import bindscope") == set()
    assert loaded("import bindscope.cli") <= {"pydantic", "huggingface_hub"}
