"""The scripts of the workflow start fast: their imports load no heavy package without need."""

from jobs_by_hand import loaded, loaded_by_scripts

_STORE = {"numpy", "zarr"}
_TABLE = {"numpy", "pandas", "pyarrow"}
# The heavy packages that scripts' imports may load; a job loads its model's or backend's besides.
# The other scripts compute with torch.
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
    ("table", _TABLE),
    ("report", {*_TABLE, "jinja2"}),
    ("figure", {*_TABLE, "matplotlib", "PIL", "safetensors"}),
)
ALLOWED = {name: packages for names, packages in _ALLOWED for name in names.split()}


def test_scripts_load_no_heavy_package_that_they_do_not_need() -> None:
    assert loaded_by_scripts(ALLOWED) == {name: set() for name in ALLOWED}


def test_importing_the_library_is_light() -> None:
    assert loaded("import bindscope") == set()
    assert loaded("import bindscope.cli") <= {"pydantic", "huggingface_hub"}
