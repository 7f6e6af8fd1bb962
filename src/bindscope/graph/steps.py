"""The steps that all studies share, from codes to the index of activations, and their paths."""

from __future__ import annotations

from bindscope.activations.parts import PART
from bindscope.config.base import SLUG
from bindscope.config.grid import TOKENS
from bindscope.core.interfaces import Step

_ACTIVATIONS = "results/activations/{dataset}/{model}"
_RECORDS = "results/records/{dataset}"
_COST = "bindscope.graph.cost"
_TRAINING = "results/training/{model}-{key}"


def store(base: str) -> dict[str, str]:
    """Outputs of a rule that writes a store: its manifest, and the store."""
    return {"manifest": f"{base}.json", "store": f"{base}.zarr"}


_SHARED = (
    Step(
        "codes",
        store("results/codes/{dataset}/{split}-{key}"),
        makes="labels",
        work=f"{_COST}:objects",
    ),
    Step("priors", {"rows": "results/priors/{dataset}-{key}.json"}, leaf=True),
    Step(
        "anchors",
        store("results/anchors/{dataset}/{split}-{key}"),
        makes="labels",
        work=f"{_COST}:anchors",
    ),
    Step("scenes", store("results/scenes/{dataset}/{split}-{shard}-{key}"), work=f"{_COST}:scenes"),
    Step("labels", {"labels": "results/labels/{dataset}-{key}.json"}),
    Step(
        "download",
        {"manifest": "results/downloads/{dataset}-{key}.json"},
        makes="downloads",
        work=f"{_COST}:download",
    ),
    Step("records", {"rows": f"{_RECORDS}/records-{{key}}.parquet"}),
    Step(
        "record_codes",
        store(f"{_RECORDS}/codes/{{split}}-{{key}}"),
        makes="labels",
        work=f"{_COST}:objects",
    ),
    Step(
        "record_scenes",
        store(f"{_RECORDS}/scenes/{{split}}-{{shard}}-{{key}}"),
        makes="scenes",
        work=f"{_COST}:scenes",
    ),
    Step(
        "counted_priors",
        {"rows": f"{_RECORDS}/priors-{{key}}.json"},
        leaf=True,
        makes="priors",
        work=f"{_COST}:objects",
    ),
    Step(
        "counted_anchors",
        store(f"{_RECORDS}/anchors/{{split}}-{{key}}"),
        makes="labels",
        work=f"{_COST}:anchors",
    ),
    Step("weights", {"manifest": "results/weights/{model}-{key}.json"}, work=f"{_COST}:weights"),
    Step(
        "training",
        {
            "manifest": f"{_TRAINING}.json",
            "weights": f"{_TRAINING}.safetensors",
            "history": f"{_TRAINING}.history.json",
        },
        leaf=True,
        work=f"{_COST}:training",
        zoo="bindscope.models.zoo:described",
    ),
    Step(
        "truth",
        {"truth": "results/truth/{dataset}/{model}-{tokens}-{key}.json"},
        leaf=True,
        work=f"{_COST}:objects",
        makes="closed forms",
    ),
    Step(
        "encoded",
        store(f"{_ACTIVATIONS}/encoded/{{part}}-{{key}}"),
        makes="activations",
        work=f"{_COST}:encoded",
    ),
    *(
        Step(
            rule,
            store(f"{_ACTIVATIONS}/{folder}/{{part}}-{{key}}"),
            script="extract.py",
            reads={"weights": ("weights",)},
            makes="activations",
            work=f"{_COST}:{work}",
        )
        for rule, folder, work in (
            ("pooled", "pooled", "pooled"),
            ("patches", "patches-{layer}", "patches"),
            ("patches_temporary", "temporary-{layer}", "patches"),
        )
    ),
    Step("captions", {"texts": "results/captions/{dataset}-{key}.parquet"}),
    *(
        Step(
            rule,
            store(f"{_ACTIVATIONS}/{rule}-{{key}}"),
            reads={"weights": ("weights",)},
            leaf=True,
            makes=makes,
            work=f"{_COST}:texts",
        )
        for rule, makes in (("text_embeddings", "text embeddings"), ("joint", "joint embeddings"))
    ),
    Step("index", {"index": f"{_ACTIVATIONS}/{{array}}-{{key}}.index.json"}, makes="activations"),
    Step(
        "table",
        {kind: f"results/tables/{{table}}.{kind}" for kind in ("parquet", "csv", "html")},
        leaf=True,
        work=f"{_COST}:page",
    ),
    Step(
        "figure",
        {kind: f"results/figures/{{figure}}.{kind}" for kind in ("png", "svg")},
        leaf=True,
        work=f"{_COST}:page",
    ),
    Step("report", {"page": "results/report.html"}, leaf=True, work=f"{_COST}:page"),
)
SHARED_STEPS = {step.name: step for step in _SHARED}

NAME = SLUG.strip("^$")
WILDCARDS = {
    "array": r"pooled|encoded|patches-(?:[0-9]+|final)|temporary-(?:[0-9]+|final)",
    "control": "[a-z_]+",
    "dataset": NAME,
    "figure": r"[a-z_]+",
    "key": r"[0-9a-f]{8}",
    "layer": r"[0-9]+|final",
    "model": NAME,
    "part": PART,
    "probe": NAME,
    "seeds": r"[0-9]+(?:_[0-9]+)*",
    "shard": r"[0-9]{5}",
    "split": r"train|val|test",
    "table": r"[a-z_]+",
    "tokens": "|".join(TOKENS),
}
