"""Where every product lives: the one place that the Snakemake rules and the library share."""

from __future__ import annotations

_CODES = "results/codes/{dataset}/{split}-{key}"
_ANCHORS = "results/anchors/{dataset}/{split}-{key}"
_SCENES = "results/scenes/{dataset}/{split}-{shard}-{key}"
_ACTIVATIONS = "results/activations/{dataset}/{model}"
_POOLED = f"{_ACTIVATIONS}/pooled/{{split}}-{{shard}}-{{key}}"
_ENCODED = f"{_ACTIVATIONS}/encoded/{{split}}-{{shard}}-{{key}}"
_PATCHES = f"{_ACTIVATIONS}/patches-{{layer}}/{{split}}-{{shard}}-{{key}}"
_TEMPORARY = f"{_ACTIVATIONS}/temporary-{{layer}}/{{split}}-{{shard}}-{{key}}"
_TRAINING = "results/training/{model}-{key}"
_FIT = "results/fits/{dataset}/{model}/{tokens}-{layer}/{probe}-{control}-{seeds}-{key}"
_NULL = "results/null/{dataset}/{probe}-{seeds}-{key}"
_ATTENTION = "results/attention/{dataset}/{model}/{layer}-{probe}-{seeds}-{key}"
_RELEASE = "results/drawn_release/{key}"
_RECORDS = "results/records/{dataset}"
_TABLE = "results/tables/{table}"
_FIGURE = "results/figures/{figure}"


def _store(base: str) -> dict[str, str]:
    return {"manifest": f"{base}.json", "store": f"{base}.zarr"}


def _fit(base: str) -> dict[str, str]:
    return {
        "rows": f"{base}.jsonl",
        "weights": f"{base}.safetensors",
        "history": f"{base}.history.json",
        "details": f"{base}.details.safetensors",
    }


def _table(name: str) -> dict[str, str]:
    base = _TABLE.format(table=name)
    return {kind: f"{base}.{kind}" for kind in ("parquet", "csv", "html")}


# rule -> output name -> path; the first output stands for the product
PATHS: dict[str, dict[str, str]] = {
    "codes": _store(_CODES),
    "scene_statistics": {"rows": "results/scene_statistics/{dataset}-{key}.json"},
    "priors": {"rows": "results/priors/{dataset}-{key}.json"},
    "anchors": _store(_ANCHORS),
    "scenes": _store(_SCENES),
    "labels": {"labels": "results/labels/{dataset}-{key}.json"},
    "download": {"manifest": "results/downloads/{dataset}-{key}.json"},
    "drawn_release": {
        "manifest": f"{_RELEASE}.json",
        **{name: f"{_RELEASE}/{name}.json.zip" for name in ("objects", "attributes", "image_data")},
        **{name: f"{_RELEASE}/{name}.txt" for name in ("object_alias", "attribute_alias")},
        "images": f"{_RELEASE}/images.zip",
    },
    "records": {"rows": f"{_RECORDS}/records-{{key}}.parquet"},
    "record_codes": _store(f"{_RECORDS}/codes/{{split}}-{{key}}"),
    "record_scenes": _store(f"{_RECORDS}/scenes/{{split}}-{{shard}}-{{key}}"),
    "counted_priors": {"rows": f"{_RECORDS}/priors-{{key}}.json"},
    "assignment_priors": {"rows": f"{_RECORDS}/assignments-{{key}}.json"},
    "counted_anchors": _store(f"{_RECORDS}/anchors/{{split}}-{{key}}"),
    "weights": {"manifest": "results/weights/{model}-{key}.json"},
    "training": {
        "manifest": f"{_TRAINING}.json",
        "weights": f"{_TRAINING}.safetensors",
        "history": f"{_TRAINING}.history.json",
    },
    "encoded": _store(_ENCODED),
    "pooled": _store(_POOLED),
    "patches": _store(_PATCHES),
    "patches_temporary": _store(_TEMPORARY),
    "index": {"index": f"{_ACTIVATIONS}/{{array}}-{{key}}.index.json"},
    "truth": {"truth": "results/truth/{dataset}/{model}-{tokens}-{key}.json"},
    "fit": _fit(_FIT),
    "null": _fit(_NULL),
    "attention": {"maps": f"{_ATTENTION}.safetensors", "share": f"{_ATTENTION}.json"},
    "table_priors": _table("priors"),
    "table_scene_statistics": _table("scene_statistics"),
    "table_binding_information": _table("binding_information"),
    "table_attention": _table("attention"),
    "figure": {"png": f"{_FIGURE}.png", "svg": f"{_FIGURE}.svg"},
    "report": {"page": "results/report.html"},
}


# rule -> role -> outputs that it reads of such an input besides the first one. Where an input has a
# store, that is always read. What is not read is no input: each costs Snakemake time.
READS: dict[str, dict[str, tuple[str, ...]]] = {
    "pooled": {"weights": ("weights",)},
    "patches": {"weights": ("weights",)},
    "patches_temporary": {"weights": ("weights",)},
    "attention": {"fit": ("weights",)},
    "table_attention": {"maps": ("share",)},
    "figure": {
        "fits": ("history", "details"),
        "nulls": ("details",),
        "training": ("history",),
    },
    "report": {"figures": ("svg",)},
}


def stem(rule: str) -> str:
    """Return the pattern of a rule's log and benchmark files, in results/logs and /benchmarks."""
    first = next(iter(PATHS[rule].values()))
    return first.removeprefix("results/").rpartition(".")[0]


WILDCARDS = {
    "array": r"pooled|encoded|patches-(?:[0-9]+|final)|temporary-(?:[0-9]+|final)",
    "control": r"none|shuffled_labels",
    "dataset": r"[a-z0-9][a-z0-9-]{0,31}",
    "figure": r"[a-z_]+",
    "key": r"[0-9a-f]{8}",
    "layer": r"[0-9]+|final",
    "model": r"[a-z0-9][a-z0-9-]{0,31}",
    "probe": r"[a-z0-9][a-z0-9-]{0,31}",
    "seeds": r"[0-9]+(?:_[0-9]+)*",
    "shard": r"[0-9]{5}",
    "split": r"train|val|test",
    "tokens": r"cls|mean|cls_mean|patches",
}
