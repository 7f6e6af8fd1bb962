"""Every key of the configuration changes what is made, or stands here with a reason.

The keys come from the schema. What a change reruns is read off the graph; `test_reruns.py` shows on
a sample that Snakemake agrees with the graph.
"""

import pytest
from mutations import example, identities, without_effect
from representatives import one_of

from bindscope.config.root import Config
from bindscope.config.structure import keys
from bindscope.core.registries import STUDIES
from bindscope.studies.build import build

KEYS = {
    f"{section.rpartition('__')[2]}.{key}": (path, section, key) for path, section, key in keys()
}
# Sections that another one refers to; the others are left out, for the time it takes to plan them.
NEEDED = {"binding_information": {"binding_id"}, "together": set(STUDIES)}
# Keys that no single change of the example shows, as `Class.key`, by the reason.
WITHOUT_EFFECT = {
    "decides about the report alone": ("Config.report", "Report.figures", "Report.title"),
    "is written out before anything is made": (
        "Config.include",
        "Controlled.seeds",
        "KnownAnswer.seeds",
        "Pretrained.seeds",
        "PythonModel.seeds",
        "ToyVision.seeds",
        "Zoo.seeds",
    ),
    "names an entry in messages": (
        "FitBlock.name",
        "LearningCurve.name",
        "PairFits.name",
    ),
    "names columns or images of the user's files": (
        "ClevrSource.skip",
        "GenomeSource.skip",
        "PugSpareSource.skip",
        "PythonSource.skip",
        "TableMasks.file",
        "TableMasks.id",
        "TableSource.masks",
        "TableSource.skip",
    ),
    "is valid with its neighbors alone": (
        "Analysis.singles",
        "Effects.layers",
        "GenomeSource.feature",
        "GenomeSource.n_categories",
        "GenomeSource.n_values",
        "PairSection.scenes",
        "PatchSampling.class_groups",
        "PlantedEncoder.name",
        "SolidsRenderer.hidden",
        "UsedScenes.test",
        "UsedScenes.train",
        "UsedScenes.val",
    ),
    "has one value in the example": (
        "Baseline.name",
        "Baseline.seeds",
        "Baseline.source",
        "PhotosRenderer.kind",
        "PooledQuadraticProbe.protocol",
        "PugSpareSource.path",
        "PugSpareSource.terms_accepted",
        "ToyVision.source",
        "VisionLanguageModel.source",
        "Zoo.source",
    ),
}


LISTED = {name for names in WITHOUT_EFFECT.values() for name in names}


def study_of(path: str) -> str:
    """Return the study whose section a key is in; nothing for shared sections."""
    return path.split(".")[1] if path.startswith("studies.") else ""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("study", one_of(["", *STUDIES], "concepts", "together"))
def test_every_key_changes_what_is_made(study: str) -> None:
    raw = example()
    if study:
        selected = {study} | NEEDED.get(study, set())
        raw["studies"] = {name: raw["studies"][name] for name in selected if name in raw["studies"]}
    tried = [
        (section, key)
        for name, (path, section, key) in KEYS.items()
        if study_of(path) == study and name not in LISTED
    ]
    assert not without_effect(raw, tried)


def test_keys_without_effect_are_keys() -> None:
    assert set(KEYS) >= LISTED


def test_a_change_leaves_what_does_not_depend_on_it() -> None:
    raw = example()
    before = identities(build(Config.model_validate(raw)))
    raw["datasets"][0]["seed"] = 7
    after = identities(build(Config.model_validate(raw)))
    assert {rule for rule, *_ in after - before} > {"codes", "scenes", "pooled", "fit", "report"}
    assert {rule for rule, *_ in after & before} > {"codes", "scenes", "pooled", "download"}


def test_models_that_are_trained_alike_share_one_training() -> None:
    config = example()
    config["models"].append({**config["models"][0], "name": "larger", "input_px": 64})
    config["studies"]["binding_information"]["fits"][0]["models"].append("larger")
    graph = build(Config.model_validate(config))
    trainings = {p.wildcards["model"]: p for p in graph.select("training")}
    assert "vit" in trainings
    assert "larger" not in trainings
    weights = {
        p.wildcards["model"]: [w.path() for w in p.inputs["weights"]]
        for p in graph.select("pooled")
    }
    assert weights["vit"] == weights["larger"] == [trainings["vit"].path()]
    index_keys = {p.key for p in graph.select("index") if p.wildcards["model"] in ("vit", "larger")}
    assert len(index_keys) > 1
    config["models"][-1]["seed"] = 1
    assert len(build(Config.model_validate(config)).select("training")) == len(trainings) + 1
