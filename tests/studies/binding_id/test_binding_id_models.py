"""Loading vision-language models, and what of them and of texts is refused, with its reason."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import numpy as np
import pytest
import tiny_vlms
import torch
import transformers
from PIL import Image
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from bindscope.core.errors import BindscopeError, InputError, ModelError
from bindscope.studies.binding_id.config import VisionLanguageModel
from bindscope.studies.binding_id.engine import (
    CONTROL,
    Add,
    Condition,
    Knockout,
    Replace,
    Rotate,
    Tokens,
)
from bindscope.studies.binding_id.tasks.prompts import Form, prompts
from bindscope.studies.binding_id.tasks.scenes import question
from bindscope.studies.binding_id.vlm.checks import control_difference, record_difference
from bindscope.studies.binding_id.vlm.edits import Frozen
from bindscope.studies.binding_id.vlm.engine import Options, VisionLanguageEngine
from bindscope.studies.binding_id.vlm.loading import adapt, config_of, load_engine

SIDE = 32
SCENES, IMAGES = tiny_vlms.scenes(2, 0, SIDE)
ITEMS = SCENES.item


def engine(options=None, template=tiny_vlms.template, parts=None):
    model, processor = parts or tiny_vlms.llava()
    return VisionLanguageEngine(adapt("tiny", model, processor, "cpu"), template, options)


def saved(folder, family="llava_onevision", without=()):
    for part in tiny_vlms.FAMILIES[family]():
        part.save_pretrained(folder)
    for name in without:
        (folder / name).unlink()
    return VisionLanguageModel(name="tiny", source=f"hf:path:{folder}")


@pytest.mark.parametrize("family", tiny_vlms.FAMILIES)
def test_a_model_in_a_folder_answers_as_the_one_that_was_saved(family, tmp_path):
    config = saved(tmp_path, family)
    form = Form("short")
    reloaded = load_engine(
        config_of({"kind": "pretrained", **config.model_dump(mode="json")}), form=form
    )
    rebuilt = engine(template=partial(prompts, form=form), parts=tiny_vlms.FAMILIES[family]())
    scenes = SCENES.with_(words=dataclasses.replace(SCENES.words, places=("left", "right")))
    answers = [
        e.answers(e.contexts(scenes, IMAGES), None, [CONTROL], [question(scenes, 0)], ITEMS)
        for e in (reloaded, rebuilt)
    ]
    np.testing.assert_allclose(*answers, atol=1e-6)


@pytest.mark.parametrize("family", tiny_vlms.FAMILIES)
def test_layers_edits_and_answers_are_those_of_the_library(family):
    """By its own hidden states, and by a hook on one of its layers; rows alone or together."""
    model, processor = tiny_vlms.FAMILIES[family]()
    subject = engine(parts=(model, processor))
    state, questions = subject.contexts(SCENES, IMAGES), [question(SCENES, r) for r in (0, 1)]
    inputs, rows = state.inputs, torch.arange(len(SCENES))[:, None]
    hidden = model(
        input_ids=inputs.ids,
        attention_mask=torch.ones_like(inputs.ids),
        **inputs.tensors,
        output_hidden_states=True,
    ).hidden_states
    added = np.random.default_rng(0).normal(size=(3, 1, 32)).astype(np.float32)
    for group in ("object", "color", "item"):
        index = state.tokens(group, 1)
        of_library = torch.stack([layer[rows, index] for layer in hidden[:3]], 1)
        difference = np.abs(subject.residual(state, group, 1) - of_library.numpy())
        assert difference.max() < 1e-5
        vectors = np.repeat(added, index.shape[1], 1)
        edit = Add(group, 1, vectors, layers=(1,))
        answers = subject.answers(
            state, None, [CONTROL, Condition("", (edit,), False)], questions, ITEMS
        )

        def hook(_, arguments, index=index):
            stream = arguments[0].clone()
            stream[rows, index] += torch.from_numpy(added[1])
            return (stream, *arguments[1:])

        tokens, targets = subject.encode_questions(state, questions, ITEMS)
        for number, more in enumerate(tokens):
            plain = subject.adapter.own_logits(inputs, more)
            handle = model.model.language_model.layers[1].register_forward_pre_hook(hook)
            edited = subject.adapter.own_logits(inputs, more)
            handle.remove()
            for condition, logits in enumerate((plain, edited)):
                expected = logits.double().log_softmax(-1).gather(-1, targets).numpy()
                np.testing.assert_allclose(answers[:, condition, number], expected, atol=1e-5)
        assert np.abs(answers[:, 1] - answers[:, 0]).max() > 1e-2
    alone = subject.contexts(SCENES[1:], IMAGES[1:])
    single = subject.answers(alone, None, [CONTROL], [q[1:] for q in questions], ITEMS[1:])
    np.testing.assert_allclose(single[0], answers[1, :1], atol=1e-5)


def test_images_that_are_not_square_are_squeezed_and_not_cropped():
    """LLaVA 1.5's processor cuts off the sides, and InternVL's makes tiles."""
    image = np.random.default_rng(0).integers(0, 256, (1, 16, 48, 3)).astype(np.uint8)
    square = np.asarray(Image.fromarray(image[0]).resize((16, 16), Image.Resampling.BICUBIC))
    for family in ("llava", "internvl"):
        model, processor = tiny_vlms.FAMILIES[family]()
        adapter = adapt("tiny", model, processor, "cpu")
        inputs = adapter.read([f"{adapter.image_text} The"], image)
        expected = processor.image_processor(images=[square], return_tensors="pt")["pixel_values"]
        assert inputs.tensors["pixel_values"].shape == expected.shape
        off = (inputs.tensors["pixel_values"] - expected).abs().max()
        assert off < 0.02, off  # a gray level, as resizing rounds
        (view,) = inputs.image.views
        np.testing.assert_allclose(view.x, [0, 24, 48])
        np.testing.assert_allclose(view.y, [0, 8, 16])


def test_the_keys_of_a_model_decide_how_it_is_read(tmp_path):
    plain = saved(tmp_path)
    changes = {"batch_size": 3}
    reloaded = load_engine(plain.model_copy(update=changes), form=Form("short"))
    assert reloaded.options == Options(**changes)

    paper = load_engine(plain.model_copy(update={"compat": "paper"}), form=Form("paper")).options
    assert (paper.pad, paper.border, paper.answer) == (3, "official", "bare")
    template = tiny_vlms.template
    add = Add("item", 0, np.ones((3, 2, 32), np.float32))
    todo = [CONTROL, Condition("", (add, Replace("object", 0, by=1, context="base")))]
    answers = []
    for update in ({}, {"attention": "eager"}, {"precision": "bfloat16"}):
        loaded = load_engine(plain.model_copy(update=update), form=Form("short"))
        loaded.template = template
        state = loaded.contexts(SCENES, IMAGES)
        answers.append(loaded.answers(state, None, todo, [question(SCENES, 0)], ITEMS))
        assert loaded.residual(state, "item", 0).dtype == np.float32
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-5)
    off = np.abs(answers[0] - answers[2]).max()
    assert 1e-4 < off < 0.1, off  # rounded to 8 bits, and no worse


@pytest.mark.parametrize(
    ("without", "words"),
    [
        (("config.json",), "has no config.json"),
        (("processor_config.json", "tokenizer_config.json", "tokenizer.json"), "processor"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(without, words, tmp_path):
    with pytest.raises(ModelError, match=words):
        load_engine(saved(tmp_path, without=without), form=Form("short"))


def test_other_families_and_moving_sources_are_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    for kind, more in (("vipllava", ""), ("qwen3_vl", ".*deepstack"), ("internvl_chat", "")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        with pytest.raises(ModelError, match=f"['`]{kind}['`].*{more}"):
            load_engine(VisionLanguageModel(name="x", source=f"hf:path:{tmp_path}"), form=Form())
    (short,) = {VisionLanguageModel(name="x", source=f"{s}path:/a").source for s in ("", "hf:")}
    assert short == "hf:path:/a"
    with pytest.raises(ValueError, match="no pinned revision"):
        VisionLanguageModel(name="x", source="hf:llava-hf/llava-onevision-qwen2-7b-ov-hf@main")


def test_a_processor_of_another_model_is_refused():
    model, _ = tiny_vlms.llava()
    _, foreign = tiny_vlms.llava(pinpoints=((16, 16), (32, 32)))
    with pytest.raises(ModelError, match=r"makes \[24\] tokens of an image .* the model 10"):
        engine(parts=(model, foreign)).contexts(SCENES, IMAGES)
    _, qwen = tiny_vlms.qwen()
    with pytest.raises(ModelError, match="marks the image by token 2, the model looks for token 1"):
        adapt("tiny", model, qwen, "cpu")


def test_towers_and_squares_of_other_models_are_refused():
    model, processor = tiny_vlms.clip_llava()
    processor.patch_size = None
    with pytest.raises(ModelError, match="`patch_size` of its processor is None"):
        adapt("tiny", model, processor, "cpu")
    model.config.vision_config.model_type = "pixtral"  # its rows of patches end in a token
    with pytest.raises(ModelError, match="its vision tower is of type 'pixtral'"):
        adapt("tiny", model, processor, "cpu")
    model, processor = tiny_vlms.internvl()
    processor.image_processor.size = {"height": 24, "width": 24}
    with pytest.raises(ModelError, match=r"squares of 24 x 24 pixels, the model reads 16 x 16"):
        engine(parts=(model, processor)).contexts(SCENES, IMAGES)


def test_image_tokens_that_are_not_in_one_row_are_refused(monkeypatch):
    subject = engine(parts=tiny_vlms.clip_llava())
    mark = subject.adapter.model.config.image_token_id
    whole = type(subject.adapter.processor).__call__

    def scattered(self, *arguments, **options):
        processed = whole(self, *arguments, **options)
        processed["input_ids"][1] = processed["input_ids"][1].roll(1)
        assert (processed["input_ids"] == mark).sum() == 8
        return processed

    monkeypatch.setattr(type(subject.adapter.processor), "__call__", scattered)
    with pytest.raises(ModelError, match="not in one row, or begin elsewhere"):
        subject.contexts(SCENES, IMAGES)


def test_a_missing_attention_mask_is_refused():
    model, processor = tiny_vlms.llava()
    processor.tokenizer.model_input_names = ["input_ids"]
    with pytest.raises(ModelError, match="no attention mask"):
        engine(parts=(model, processor)).contexts(SCENES, IMAGES)


def test_sliding_attention_and_growing_rotations_are_refused():
    sliding = tiny_vlms.llava(
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        sliding_window=4,
        use_sliding_window=True,
    )
    with pytest.raises(ModelError, match="sliding window"):
        engine(parts=sliding)
    growing = tiny_vlms.llava(
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    )
    with pytest.raises(ModelError, match=r"\(dynamic\) change with the length"):
        engine(parts=growing)


BACKBONES = {
    "a window without types of layers": (
        {"model_type": "mistral", "sliding_window": 8},
        r"`sliding_window` is 8",
    ),
    "interleaved": (
        {"model_type": "cohere", "eos_token_id": 0, "bos_token_id": 0},
        r"layer 0 rotates neighboring channels of its keys \(interleaved",
    ),
    "a part of each key": (
        {"model_type": "phi", "bos_token_id": 0, "eos_token_id": 0},
        r"rotates 4 of the 8 channels of a key \(partial",
    ),
    "a layer without rotations": (
        {
            "model_type": "smollm3",
            "no_rope_layers": [1, 1, 0],
            "pad_token_id": 0,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
        r"layer 2 does not rotate its keys",
    ),
}


@pytest.mark.parametrize("case", BACKBONES)
def test_backbones_whose_keys_cannot_be_moved_are_refused(case):
    changes, message = BACKBONES[case]
    with pytest.raises(ModelError, match=message):
        engine(parts=tiny_vlms.llava(**changes))


def test_positions_that_are_no_rotations_are_refused():
    model, processor = tiny_vlms.llava()
    del model.model.language_model.rotary_emb
    with pytest.raises(ModelError, match=r"\(qwen2\) has no `rotary_emb`"):
        engine(parts=(model, processor))


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "llama"},
        {"model_type": "mistral", "sliding_window": None},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
        {"dtype": torch.bfloat16},
    ],
)
def test_backbones_that_rotate_halves_are_accepted(changes):
    changes = dict(changes)
    dtype = changes.pop("dtype", torch.float32)
    model, processor = tiny_vlms.llava(**changes)
    accepted = engine(parts=(model.to(dtype), processor))
    state, questions = accepted.contexts(SCENES, IMAGES), [question(SCENES, r) for r in (0, 1)]
    nats = control_difference(accepted, state, questions, ITEMS)
    assert nats < (1e-4 if dtype == torch.float32 else 0.5)


def test_attention_that_ignores_masks_is_refused():
    """Hidden tokens would stay visible, and questions side by side would see each other."""
    model, processor = tiny_vlms.llava()
    transformers.AttentionInterface.register(
        "blind_to_masks",
        lambda module, query, key, value, mask, **more: sdpa_attention_forward(
            module, query, key, value, None, **more
        ),
    )
    model.set_attn_implementation("blind_to_masks")
    with pytest.raises(ModelError, match="'blind_to_masks' ignores masks") as caught:
        engine(parts=(model, processor))
    assert 'attn_implementation="eager"' in caught.value.remedy
    model.set_attn_implementation("eager")
    engine(parts=(model, processor))


def test_control_answers_that_are_not_the_models_own_are_refused(monkeypatch, caplog):
    """The library's cache gets every key 8 positions late, which no configuration says."""
    subject = engine()
    state, questions = subject.contexts(SCENES, IMAGES), [question(SCENES, r) for r in (0, 1)]
    exact = control_difference(subject, state, questions, ITEMS)
    assert exact < 1e-5
    record_difference(subject, exact)
    monkeypatch.setattr(Frozen, "next_positions", lambda self: self.positions.amax((0, 2)) + 9)
    nats = control_difference(subject, state, questions, ITEMS)
    with pytest.raises(ModelError, match=r"differ by .* nats from those of its own pass"):
        record_difference(subject, nats)
    subject.adapter.model.to(torch.bfloat16)
    with caplog.at_level("INFO"):
        record_difference(subject, 0.5)  # rounding
    assert "differ by 0.5 nats" in caplog.text
    with pytest.raises(ModelError, match="float32"):
        record_difference(subject, 1.5)


def words(**changes):
    return SCENES.with_(words=dataclasses.replace(SCENES.words, **changes))


def unequal():
    """One color of the first scene takes two tokens."""
    colors = list(SCENES.words.colors)
    colors[SCENES.color[0, 0]] = "green red"
    return words(colors=tuple(colors))


REFUSED = {
    "an item of two tokens": (
        lambda: words(items=("J", "Q", "X", "Z", "J Q")),
        "' J Q': it is 2 tokens",
    ),
    "contexts of unequal length": (unequal, r"prompts of a batch take \[\d+, \d+\] tokens"),
    "shapes of unequal length": (
        lambda: words(shapes=("cone", "cube", "can", "sphere one")),
        "question 0",
    ),
    "boxes outside": (
        lambda: SCENES.with_(boxes=SCENES.boxes + 20),
        "reaches beyond the image of 32 x 32",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_scenes_that_a_model_cannot_read_are_refused(case):
    make, message = REFUSED[case]
    scenes, subject = make(), engine()
    shapes = np.array([3, 1]) if "shapes" in case else np.array([0, 1])
    about = dataclasses.replace(question(scenes, 0), values=shapes)
    edit = Condition("", (Replace("object", 0, context="base"),))

    def read_and_ask():
        return subject.answers(subject.contexts(scenes, IMAGES), None, [edit], [about], ITEMS)

    with pytest.raises(BindscopeError, match=message):
        read_and_ask()


def edited(edit, frozen=True):
    subject = engine()
    state = subject.contexts(SCENES, IMAGES)
    condition = Condition("mine", (edit,), frozen)
    return subject.answers(state, None, [condition], [question(SCENES, 0)], ITEMS)


@pytest.mark.parametrize(
    ("edit", "frozen", "message"),
    [
        (Replace("object", 0), True, "takes tokens from a source, and none was given"),
        (Replace("item", 0, (3,), context="base"), True, "names layer 3, and the model has 3"),
        (Add("item", 0, np.zeros((3, 2, 8), np.float32)), True, r"shape \(3, 2, 8\) where"),
        (Add("item", 0, np.full((3, 2, 32), np.nan, np.float32)), True, "not finite"),
        (Rotate("item", 0, 1), False, "computed anew"),
        (Knockout("item", 0, seen_by="color"), True, "has no effect"),
        (
            Add("object", 0, np.zeros((3, 6, 32), np.float32), tokens=Tokens(support="background")),
            True,
            "own tokens only",
        ),
    ],
)
def test_interventions_that_do_not_fit_are_refused(edit, frozen, message):
    with pytest.raises(InputError, match=message):
        edited(edit, frozen)


def test_a_full_stop_and_line_breaks_that_are_one_token_belong_to_the_context():
    """Qwen2's tokenizer joins them: `lead` moves the line breaks into the context."""
    form = Form("paper")
    texts = [p.context + p.questions[0] for p in prompts(SCENES, [question(SCENES, 0)], form)]
    texts += [f" {word}" for word in (*tiny_vlms.COLORS, *tiny_vlms.SHAPES, *tiny_vlms.ITEMS)] * 9
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?[^\s\p{L}\p{N}]+[\r\n]*| ?\p{L}+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [*tiny_vlms.SPECIAL, "<|im_start|>", "<|im_end|>"]
    raw.train_from_iterator(
        texts * 3,
        trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, special_tokens=special),
    )
    model, processor = tiny_vlms.llava(vocab_size=1000)
    processor.tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        eos_token="<eos>",
        additional_special_tokens=["<image>"],
    )
    template, questions = partial(prompts, form=form), [question(SCENES, 0)]
    plain = engine(template=template, parts=(model, processor))
    with pytest.raises(InputError, match="changes the tokens of its context"):
        plain.answers(plain.contexts(SCENES, IMAGES), None, [CONTROL], questions, ITEMS)
    options = Options(lead="\n\n", answer="bare")
    led = engine(options, template, (model, processor))
    state = led.contexts(SCENES, IMAGES)
    last = led.adapter.tokenize(state.read.texts)[0][0][-1]
    assert processor.tokenizer.convert_ids_to_tokens(last) == ".ĊĊ"
    assert np.isfinite(led.answers(state, None, [CONTROL], questions, ITEMS)).all()
