"""Published models in all but their weights: what a person with a GPU meets in the first hour.

Stand-ins as the hub has them (`hub_vlms`), whose tokenizer splits frustum, torus, cyan and azure
in two, go through the jobs of suites.
"""

from __future__ import annotations

import json
import weakref
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args

import hub_vlms
import numpy as np
import pytest
import torch
from jobs_by_hand import job_by_hand, script
from killed_jobs import KilledError

from bindscope.config.loading import load_config
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError, InputError, ModelError
from bindscope.core.graph import Graph, Product
from bindscope.studies.binding_id import cost
from bindscope.studies.binding_id.config import VisionLanguageModel
from bindscope.studies.binding_id.engine import Add
from bindscope.studies.binding_id.estimates import Sums, read
from bindscope.studies.binding_id.experiments import mean
from bindscope.studies.binding_id.plans import Batch
from bindscope.studies.binding_id.registry import EXPERIMENTS, find_judged
from bindscope.studies.binding_id.tasks.prompts import Form, prompts
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs, question
from bindscope.studies.binding_id.vlm import engine as vlm_engine
from bindscope.studies.binding_id.vlm.edits import Frozen, resolve
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine
from bindscope.studies.binding_id.vlm.loading import load
from bindscope.studies.build import build

FAMILIES: tuple[hub_vlms.Family, ...] = get_args(hub_vlms.Family)
TWO_THINGS = [name for name in EXPERIMENTS if name not in ("mixture", "subspaces", "heads")]
SMALL = {"resamples": 10, "batch_size": 2}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hub")
    return {family: hub_vlms.save(family, folder / family) for family in FAMILIES}


@pytest.fixture(scope="module")
def open_engine(hub: dict[str, Path]) -> Any:
    """A function of a family that loads its stand-in once."""
    return cache(lambda family: loaded(hub[family]))


def configured(folder: Path, model: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A suite of a stand-in on four tasks' worth of keys."""
    section = {
        "tasks": [
            {"name": "as-published", "rows": 3, "estimation_rows": 4},
            {
                "name": "nine-slots",
                "layout": "grid",
                "order": "independent",
                "rows": 3,
                "estimation_rows": 40,
            },
        ],
        "models": [{"name": "m", "source": f"hf:path:{folder}", **(model or {})}],
        "suites": [{"name": "s", "tasks": ["as-published"], "models": ["m"], **SMALL, **changes}],
    }
    return {"datasets": [], "studies": {"binding_id": section}}


def graph_of(folder: Path, model: dict[str, Any] | None = None, **changes: Any) -> Graph:
    return build(Config.model_validate(configured(folder, model, **changes)))


def jobs_of(graph: Graph) -> list[Product]:
    return graph.select("binding_id_estimates", "binding_id_interventions")


def loaded(folder: Path, rule: Rule | None = None, **model: Any) -> Any:
    config = VisionLanguageModel(name="m", source=f"hf:path:{folder}", **model)
    return load(config.model_dump(mode="json"), rule or Rule(), None)


def test_padded_regions_of_nine_slots_stay_in_their_view(hub: dict[str, Path]) -> None:
    """Six of nine slots left it; clipped ones had unequally many tokens, which nothing adds to."""
    engine, _ = loaded(hub["llava_onevision"], Rule("grid", order="independent"))
    scenes = draw_pairs(Rule("grid", order="independent"), "test", 12, 0).base
    image = engine.adapter.image_tokens({}, (384, 384))
    for boxes in scenes.boxes:
        for role in (0, 1):
            assert len(image.select(boxes, role, vlm_engine.Tokens(pad=3), "inside")) == 2 * 11**2


def test_words_of_a_kind_take_equally_many_tokens(hub: dict[str, Path]) -> None:
    """Counted in whole prompts of scenes in which all words of both splits occur."""
    rule = Rule()
    engine, _ = loaded(hub["qwen2_vl"], rule)
    tokenizer = engine.adapter.tokenize
    lengths: dict[str, set[int]] = {"context": set(), "test": set(), "estimation": set()}
    for split in ("test", "estimation"):
        scenes = draw_pairs(rule, split, 60, 0).base  # type: ignore[arg-type]
        assert len(np.unique(scenes.color)) == 6
        foreign = question(draw_pairs(rule, "estimation", 60, 1).base, 0)
        for prompt in engine.template(scenes, [question(scenes, 0), foreign]):
            context, present, null = (
                len(tokenizer([text])[0][0]) for text in (prompt.context, *prompt.questions)
            )
            lengths["context"].add(context)
            lengths[split].add(present)
            lengths["estimation"].add(null)
    assert {name: len(values) for name, values in lengths.items()} == dict.fromkeys(lengths, 1)
    uneven = partial(prompts, form=Form())(scenes, [foreign])
    assert len({len(tokenizer([each.context])[0][0]) for each in uneven}) > 1


def test_words_that_no_space_makes_equal_are_named_before_weights_are_read(tmp_path: Path) -> None:
    folder = hub_vlms.save("qwen2_vl", tmp_path, {"azure": (" a", "zu", "re")})
    (folder / "model.safetensors").write_bytes(b"not read")
    with pytest.raises(InputError, match="'azure' takes 2 more tokens than '") as caught:
        loaded(folder)
    assert "leave the model out of this task's suites" in str(caught.value)


def test_released_spaces_are_enough_where_only_the_published_words_split(tmp_path: Path) -> None:
    """Qwen2's own tokenizer splits frustum and torus: the evened prompt is the released one."""
    split = {name: parts for name, parts in hub_vlms.SPLIT.items() if name in ("frustum", "torus")}
    folder = hub_vlms.save("llava_onevision", tmp_path, split)
    engine, _ = loaded(folder, compat="paper")
    scenes = draw_pairs(Rule(), "estimation", 30, 0).base
    about = question(scenes, 0)
    for prompt, word in zip(engine.template(scenes, [about]), about.texts(), strict=True):
        spaces = "  " if word in ("pyramid", "prism") else ""
        assert prompt.context.startswith("<|im_start|>user <image>\n\nAnswer the question")
        assert "  " not in prompt.context
        assert prompt.questions[0] == (
            f"\n\nQuestion: Which item does the {spaces}{word} contain?<|im_end|><|im_start|>"
            f"assistant\nAnswer: The {spaces}{word} contains item"
        )


def test_prompts_are_in_the_models_own_chat_template(open_engine: Any) -> None:
    scenes = draw_pairs(Rule(), "test", 1, 0).base
    texts = {}
    for family in FAMILIES:
        (prompt,) = open_engine(family)[0].template(scenes, [question(scenes, 0)])
        texts[family] = (prompt.context, prompt.questions[0])
    before = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<image>"
    assert texts["qwen2_vl"][0].startswith(f"{before}Answer the question")
    assert "?<|im_end|>\n<|im_start|>assistant\nAnswer: The " in texts["qwen2_vl"][1]
    assert texts["qwen2_5_vl"] == texts["qwen2_vl"]
    assert texts["llava_onevision"][0].startswith("<|im_start|>user <image>\nAnswer the question")
    assert texts["internvl"][0].startswith("<|im_start|>user\n<image>\nAnswer the question")
    assert texts["llava"][0].startswith("USER: <image>\nAnswer the question")
    assert "contain? ASSISTANT: Answer: The " in texts["llava"][1]
    # Its template begins with <s>, which its tokenizer puts there, too.
    assert texts["llava_next"][0].startswith("[INST] <image>\nAnswer the question")
    assert "contain? [/INST] Answer: The " in texts["llava_next"][1]


@pytest.mark.parametrize("family", FAMILIES)
def test_places_of_words_hold_their_tokens(open_engine: Any, family: str) -> None:
    """Of two tokenizers; one puts spaces before texts, and a first token before prompts."""
    engine, pictures = open_engine(family)
    scenes = draw_pairs(Rule(), "test", 3, 0).base
    state = engine.contexts(scenes, pictures(scenes))
    tokenizer = engine.adapter.processor.tokenizer
    ids = state.inputs.ids
    first = tokenizer.bos_token_id
    assert first is None or (ids == first).sum(1).tolist() == [1, 1, 1]
    for row, role in np.ndindex(3, 2):
        color = scenes.words.colors[scenes.color[row, role]]
        item = scenes.words.items[scenes.item[row, role]]
        for group, words in (("color", f"{color} object"), ("item", f"item {item}")):
            index = state.tokens(group, role)[row]
            assert tokenizer.decode(ids[row, index]).strip() == words
    targets = engine.encode_questions(state, [question(scenes, 0)], scenes.item)[1]
    last = [state.tokens("item", role)[:, -1] for role in (0, 1)]
    assert targets.tolist() == ids.gather(1, torch.stack(last, 1)).tolist()


def test_the_released_prompt_is_refused_for_a_tokenizer_without_its_turns(
    hub: dict[str, Path],
) -> None:
    with pytest.raises(ModelError, match=r"does not know <\|im_start\|>"):
        loaded(hub["llava"], compat="paper")


def test_a_processor_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    folder = hub_vlms.save("qwen2_vl", tmp_path)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(Exception, match="no chat template") as caught:
        loaded(folder)
    assert "compat: paper" in str(caught.value)


def test_what_the_released_code_does_not_have_is_refused(tmp_path: Path) -> None:
    content = configured(tmp_path, {"compat": "paper"}, tasks=["nine-slots"])
    with pytest.raises(ConfigError, match="`layout: pair` and `order: left_first`"):
        load_config(content, "c.yaml")


def test_an_experiment_is_a_product_of_its_own(hub: dict[str, Path]) -> None:
    """Adding one, or a change of what one reads, schedules that one alone."""
    folder = hub["qwen2_vl"]
    few: dict[str, Any] = {"experiments": ["factorizability", "mean"]}
    before = {job.path() for job in jobs_of(graph_of(folder, **few))}
    assert len(before) == 3  # and the mean differences

    def new(**changes: Any) -> set[str]:
        return {
            job.wildcards.get("experiment", "estimates")
            for job in jobs_of(graph_of(folder, **{**few, **changes}))
            if job.path() not in before
        }

    assert new(experiments=["factorizability", "mean", "layers"]) == {"layers"}
    assert new(window=3, head_layers=[0]) == set()
    assert new(seed=1) == {"factorizability", "mean"}
    assert new(batch_size=3) == {"factorizability", "mean", "estimates"}


def test_code_of_experiments_that_tell_accounts_apart_is_in_each_others_key() -> None:
    assert set(find_judged()) == {"factorizability", "mean", "signatures"}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_forecast_counts_what_a_context_holds(
    hub: dict[str, Path], open_engine: Any, family: str
) -> None:
    engine, pictures = open_engine(family)
    state = read(engine, draw_pairs(Rule(), "test", 2, 0).base, pictures)
    tensors = [
        *state.residual,
        *state.inputs.tensors.values(),
        state.embedded.hidden,
        state.embedded.mask,
        *(part for layer in state.cache for part in layer),
    ]
    counted = cost._engine({"kind": "published", "source": f"hf:path:{hub[family]}"})
    assert (counted.model.layers, counted.model.width) == (engine.layers, engine.width)
    assert counted.model.weights == sum(p.numel() for p in engine.adapter.model.parameters())
    assert counted.tokens == pytest.approx(state.length, rel=0.02, abs=20)
    n_tokens = state.residual[0].shape[1]
    memory = [counted.memory(contexts, 2, 2, n_tokens, 0) for contexts in (1, 2)]
    assert memory[1] - memory[0] == pytest.approx(sum(tensor.nbytes for tensor in tensors), rel=0.1)


def test_every_experiment_of_two_things_ends_with_as_many_contexts_as_the_forecast_counts(
    hub: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of words that split unequally."""
    alive: weakref.WeakSet[Frozen] = weakref.WeakSet()
    counts: list[int] = []
    read_contexts = VisionLanguageEngine.read

    def counted(*arguments: Any) -> Frozen:
        state = read_contexts(*arguments)
        alive.add(state)
        counts.append(len(alive))
        return state

    monkeypatch.setattr(VisionLanguageEngine, "read", counted)
    graph = graph_of(hub["qwen2_vl"], experiments=TWO_THINGS, window=2)
    for job in jobs_of(graph):
        counts.clear()
        script(job.rule).main(job_by_hand(job, tmp_path))
        name = job.content.get("experiment", "estimates")
        assert max(counts) == cost.contexts_in_memory(name), job.path()
        if job.rule == "binding_id_interventions":
            assert (tmp_path / job.path("rows")).read_text().count("\n") > 1


def test_killed_jobs_go_on_inside_a_batch_and_between_estimates(
    hub: dict[str, Path], tmp_path: Path, deaths: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of some conditions, and sums over batches of mean differences."""
    graph = graph_of(hub["qwen2_vl"], experiments=["mean"], batch_size=1)
    jobs = [*graph.select("binding_id_estimates"), *graph.select("binding_id_interventions")]
    expected = tmp_path / "undisturbed"
    for job in jobs:
        script(job.rule).main(job_by_hand(job, expected))
    for job in jobs:
        died = 0
        while died < 20:
            deaths["left"] = 2**died
            try:
                script(job.rule).main(job_by_hand(job, tmp_path))
                break
            except KilledError:
                died += 1
        assert died > 1, job.rule
        for output in job.step.outputs:
            resumed, whole = (root / job.path(output) for root in (tmp_path, expected))
            assert resumed.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.rglob("*.checkpoint"))


def test_the_device_is_named_once_and_decides_the_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {"experiments": ["factorizability"]}

    def spec(model: dict[str, Any] | None = None, **more: Any) -> tuple[str, str]:
        (job,) = graph_of(hub_folder, model, **fields, **more).select("binding_id_interventions")
        content = json.loads(job.spec)
        return content["device"], content["models"][0]["precision"]

    hub_folder = hub_vlms.save("qwen2_vl", tmp_path)
    assert spec(device="cuda") == ("cuda", "bfloat16")
    assert spec({"compat": "paper"}, device="cuda") == ("cuda", "float32")
    # Effects of single layers are smaller than what bfloat16 rounds.
    fields["experiments"] = ["layers"]
    assert spec(device="cuda") == ("cuda", "float32")
    assert spec({"precision": "bfloat16"}, device="cuda") == ("cuda", "bfloat16")
    fields["experiments"] = ["factorizability"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert spec() == spec(device="cpu") == ("cpu", "float32")


def test_items_of_several_tokens_are_named_before_weights_are_read(tmp_path: Path) -> None:
    letters = {"Q": (" ", "Q"), "torus": (" tor", "us")}
    folder = hub_vlms.save("qwen2_vl", tmp_path, letters)
    (folder / "model.safetensors").write_bytes(b"not read")
    with pytest.raises(InputError, match="the answer ' Q': it is 2 tokens"):
        loaded(folder)


def test_vectors_are_resolved_batch_by_batch_and_not_repeated(
    hub: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = Rule()
    engine, pictures = loaded(hub["qwen2_vl"], rule, batch_size=4)
    scenes = draw_pairs(rule, "estimation", 4, 0).base
    sums = Sums(scenes)
    sums.add(engine, scenes, pictures)
    estimates = sums.solved()
    batch = Batch(engine, pictures, draw_pairs(rule, "test", 4, 0), rule, estimates)
    plan = mean.plan(batch)
    scaled = [trial for trial in plan.trials if trial.condition.how == "scaled"]
    added = [
        edit for trial in scaled for edit in trial.condition.interventions if isinstance(edit, Add)
    ]
    shape = (engine.layers, batch.engine.positions(batch.base, "object", 0).shape[1], engine.width)
    assert added[0].vectors.shape == shape  # two fixed slots: the same for all rows
    assert len({id(edit.vectors) for edit in added}) == 4  # a group and role, whatever the dose
    happened: list[str] = []

    def watch(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            happened.append(name)
            return function(*arguments)

        return call

    monkeypatch.setattr(vlm_engine, "resolve", watch("resolved", resolve))
    monkeypatch.setattr(engine, "_answer", watch("answered", engine._answer))
    plan.answered(engine, batch.base)
    assert len(scaled) == 2 * len(mean.SCALES)
    assert happened == ["resolved", "answered"] * len(plan.trials)
