"""What the study adds to the graph, and what its section refuses."""

import json

import pytest
from mutations import example

from bindscope.config.loading import load_config
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError
from bindscope.studies.build import build
from bindscope.studies.same_object.effects.job import interventions


def graph_of(**changes):
    config = example()
    config["studies"]["same_object"] |= changes
    del config["studies"]["together"]  # asks for fits that a change may leave out
    return build(Config.model_validate(config))


def test_a_layer_that_two_entries_ask_for_is_fitted_once():
    block = {"datasets": ["tiny"], "models": ["vit"], "probes": ["quadratic"], "layers": [1]}
    further = {**block, "name": "more", "layers": [0, 1]}
    graph = graph_of(fits=[{**block, "name": "one"}, further], maps=None, effects=None)
    fits = graph.select("same_object_fit", model="vit", probe="quadratic")
    assert [fit.wildcards["layers"] for fit in fits] == ["1", "0"]


def test_tokens_that_are_not_kept_are_temporary_and_of_one_entry():
    config = example()
    block = {"datasets": ["tiny"], "models": ["vit"], "layers": [0, 1]}
    first = {**block, "name": "one", "probes": ["quadratic"]}
    more = {**block, "name": "more", "probes": ["cosine"]}
    known = [{"name": family, "family": family} for family in ("quadratic", "cosine")]
    del config["studies"]["together"]
    for model in config["models"]:
        if model["name"] == "vit":
            model["extraction"] = {"keep_patches": False}

    def built(*fits):
        changes = {
            "probes": known,
            "fits": list(fits),
            "maps": None,
            "effects": None,
            "geometry": None,
            "groups": [],
        }
        config["studies"]["same_object"] |= changes
        return build(Config.model_validate(config))

    before, after = built(first), built(first, more)
    assert not after.select("sampled")
    temporary = {p.path() for p in before.select("sampled_temporary")}
    assert temporary < {p.path() for p in after.select("sampled_temporary")}
    (old,) = before.select("same_object_fit", model="vit")
    (same,) = after.select("same_object_fit", model="vit", probe="quadratic")
    (added,) = after.select("same_object_fit", model="vit", probe="cosine")
    assert same.files() == old.files()
    assert not temporary & {path for paths in added.files().values() for path in paths}
    assert json.loads(added.spec)["inputs"] == json.loads(same.spec)["inputs"]  # the same tokens


def test_a_rival_is_fitted_to_every_layer_where_a_claim_may_be_judged():
    """As in `same_object.yaml`: an entry fits rivals to a few of the layers only."""
    block = {"datasets": ["tiny"], "models": ["vit"]}
    graph = graph_of(
        fits=[
            {**block, "name": "all", "layers": [0, 1], "probes": ["quadratic"]},
            {
                **block,
                "name": "rivals",
                "layers": [1],
                "seed_blocks": [[0], [1]],
                "probes": ["class-position", "identity", "cosine"],
            },
        ],
        maps=None,
        effects=None,
    )

    def layers(probe):
        fits = graph.select("same_object_fit", model="vit", probe=probe)
        return sorted("-".join((f.wildcards["layers"], f.wildcards["seeds"])) for f in fits)

    assert layers("class-position") == ["0-1-0"]
    assert layers("identity") == ["0-1-0", "0-1-1"]
    assert layers("cosine") == ["1-0"]  # no claim compares it


def test_what_has_one_optimum_is_fitted_once_whatever_the_seeds():
    blocks = [[0], [1, 2]]
    fits = example()["studies"]["same_object"]["fits"]
    graph = graph_of(fits=[{**fits[0], "seed_blocks": blocks}], maps=None, effects=None)
    seeds_fitted = {
        probe: [
            fit.wildcards["seeds"]
            for fit in graph.select("same_object_fit", probe=probe, model="vit")
        ]
        for probe in ("quadratic", "identity")
    }
    assert seeds_fitted == {"quadratic": ["0"], "identity": ["0", "1_2"]}


def test_models_of_two_grids_share_no_pairs_and_those_of_one_all():
    graph = graph_of()
    by_grid = {p.wildcards["grid"] for p in graph.select("patch_samples", dataset="tiny")}
    assert by_grid == {"4x4"}
    blocks = example()["studies"]["same_object"]["fits"]
    fits = [*blocks[:1], {**blocks[1], "patch_grid": [2, 2]}, *blocks[2:]]
    changed = graph_of(fits=fits, effects=None)
    samples = changed.select("patch_samples", dataset="tiny", split="test")
    assert [p.wildcards["grid"] for p in samples] == ["4x4", "2x2"]
    assert samples[0].key != samples[1].key
    test = json.loads(samples[0].spec)
    assert test["grid"] == [4, 4]


WHOLE = {
    "name": "whole",
    "datasets": ["tiny"],
    "models": ["vit"],
    "probes": ["quadratic", "position"],
    "layers": [0, 1],
}
EDITS = {
    "datasets": ["tiny"],
    "models": ["vit"],
    "probes": ["quadratic"],
    "layers": [0],
    "retrained": {"probes": ["position"]},
}


def test_what_claims_about_edits_need_is_made_whatever_is_asked():
    """The edited probe is fitted again, to removal too; edits are made at full strength."""
    edits = {**EDITS, "retrained": {"probes": ["class"]}}
    graph = graph_of(fits=[WHOLE], maps=None, geometry=None, effects=edits)
    [job] = graph.select("same_object_effects")
    spec = json.loads(job.spec)
    assert [probe["name"] for probe in spec["retrained"]] == ["quadratic", "class"]
    sample = json.loads(job.inputs["train_samples"][0].spec)
    assert spec["n_scenes"]["train"] <= sample["n_scenes"]
    assert spec["later"] == 1
    full = {(what.edit, what.strength) for what in interventions()}
    assert {("shuffle", 1.0), ("inject", 1.0), ("remove", 1.0)} <= full


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scenes": {"train": 10**6, "val": 1, "test": 1}}, "ask for no more"),
        ({"sampling": {"class_groups": ["hue"]}}, "'hue' is not defined"),
        (
            {"maps": {"datasets": ["tiny"], "models": ["vit"], "probes": ["cosine"]}},
            "maps.probes: 'cosine' is cosine, not quadratic",
        ),
        (
            {"geometry": {"datasets": ["tiny"], "models": ["mine"], "probes": ["quadratic2"]}},
            "geometry: no entry of `fits` fits 'quadratic2' to 'mine'",
        ),
        (
            {"maps": None, "effects": {**EDITS, "layers": [1]}, "fits": [WHOLE]},
            "fitted to no layer of 'vit' on 'tiny' after layer 1, and claims are about a later",
        ),
    ],
)
def test_what_does_not_fit_is_told(changes, message):
    with pytest.raises(ValueError, match=message):
        graph_of(**changes)


def test_a_model_that_does_not_say_its_grid_needs_one():
    blocks = example()["studies"]["same_object"]["fits"]
    with pytest.raises(ValueError, match="does not say how many patches"):
        graph_of(fits=[{**blocks[1], "patch_grid": None}], maps=None)


def test_scenes_without_masks_are_refused_before_anything_is_downloaded():
    """CLEVR's release has none; it would be 19 GB."""
    config = example()
    clevr = {
        "name": "clevr-photos",
        "source": {"kind": "clevr"},
        "n_scenes": {"train": 8, "val": 8, "test": 8},
        "space": {"kind": "draws", "groups": [{"name": "color", "size": 8}], "n_objects": 6},
        "split": {"rule": "index", "sizes": {"train": 8, "val": 8, "test": 8}},
        "shard_size": {"train": 8, "val": 8, "test": 8},
        "render": {"kind": "photos", "size_px": 32},
    }
    config["datasets"].append(clevr)
    block = {
        "name": "more",
        "datasets": ["clevr-photos"],
        "models": ["vit"],
        "probes": ["quadratic"],
    }
    config["studies"]["same_object"]["fits"].append(block)
    with pytest.raises(ConfigError, match=r"scenes of 'clevr-photos' \(clevr\) have no masks"):
        load_config(config, "here")
