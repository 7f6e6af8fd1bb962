"""Stand-ins for published vision-language models: folders as the hub has them, weights random.

Everything but the numbers of the weights is as released: file names, `model_type`, image processors
with tiles (LLaVA-OneVision, 384 px in patches of 14, 36 resolutions; LLaVA-NeXT, 336 px, 5), with
one square (LLaVA 1.5, InternVL) or smart resize (Qwen), chat templates, placeholders of images,
special tokens, and a byte-level BPE tokenizer with Qwen2's rules or one with Llama's. It is trained
on the spot so that words split unequally: `SPLIT` take two tokens each, all other words of the
tasks one.
"""

import json
from pathlib import Path
from typing import Any, Literal

import torch

from bindscope.core.workarounds import declare_torchvision_operators

declare_torchvision_operators()

import transformers  # noqa: E402
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

from bindscope.studies.binding_id.tasks.scenes import words_of  # noqa: E402

Family = Literal["internvl", "llava", "llava_next", "llava_onevision", "qwen2_5_vl", "qwen2_vl"]
Split = dict[str, tuple[str, ...]] | None
SPLIT = {
    "frustum": (" fr", "ustum"),
    "torus": (" tor", "us"),
    "cyan": (" cy", "an"),
    "azure": (" az", "ure"),
}
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<image>",
    "<video>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
INTERNVL = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAVA_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ '\n' + content['text'] }}{% endfor %}{{'<|im_end|>'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
INTERNVL_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}<IMG_CONTEXT>\n"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VICUNA_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() }}: "
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}<image>\n"
    "{% else %}{{ content['text'] }} {% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[INST] "
    "{% for content in message['content'] %}{% if content['type'] == 'image' %}<image>\n"
    "{% else %}{{ content['text'] }} {% endif %}{% endfor %}[/INST]{% endfor %}"
)
PINPOINTS = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
LANGUAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 32768,
}


def tokenizer(template: str, split: Split = None, names: Any = SPECIAL) -> Any:
    """Return a tokenizer trained so that the words of `split` take as many tokens as named."""
    cut = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    parts = _trained(cut, split, pre_tokenizers.ByteLevel.alphabet(), ())
    return transformers.Qwen2Tokenizer(
        **parts,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=names if isinstance(names, dict) else list(names),
        chat_template=template,
    )


def llama_tokenizer(template: str, split: Split = None) -> Any:
    """Return one with Llama's rules: spaces are letters, other signs of no token are bytes."""
    first = ("<unk>", "<s>", "</s>", *(f"<0x{number:02X}>" for number in range(256)))
    parts = _trained(pre_tokenizers.Metaspace(prepend_scheme="never"), split, [], first)
    return transformers.LlamaTokenizer(
        **parts,
        pad_token="<pad>",
        add_bos_token=True,
        extra_special_tokens=["<image>"],
        chat_template=template,
    )


def _trained(cut: Any, split: Split, alphabet: list[str], first: tuple[str, ...]) -> dict[str, Any]:
    """Return the vocabulary and merges of a tokenizer of texts that are cut in a way."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = cut
    raw.train_from_iterator(
        _corpus(SPLIT if split is None else split) * 20,
        trainers.BpeTrainer(
            vocab_size=2000,
            initial_alphabet=alphabet,
            special_tokens=list(first),
            show_progress=False,
        ),
    )
    parts = json.loads(raw.to_str())["model"]
    return {"vocab": parts["vocab"], "merges": [tuple(pair) for pair in parts["merges"]]}


def _corpus(split: dict[str, tuple[str, ...]]) -> list[str]:
    """Return the texts of all tasks, of split words their parts alone."""
    vocabularies = [
        words_of(side, layout) for side in ("test", "estimation") for layout in ("pair", "grid")
    ]
    kinds = ("shape", "color", "item")
    words = {word for vocabulary in vocabularies for kind in kinds for word in vocabulary.get(kind)}
    texts = [f" {word}" for word in sorted(words - set(split))]
    texts += [part for parts in split.values() for part in parts]
    prompt = (
        "Answer the question based on the provided image and the context below. Keep the answer "
        "short.\n\nContext:The object contains item. Item is in the object. There is a an and "
        "system You are helpful assistant user\n\nQuestion: Which item does the contain? contains"
    )
    spaces = [" " * n for n in range(2, 10)]  # one token each, as in Qwen2's
    return [*texts, *prompt.split(" "), *(f" {word}" for word in prompt.split()), ".\n\n", *spaces]


def save(family: Family, folder: Path, split: Split = None, **language: Any) -> Path:
    """Write a stand-in into a folder, as a snapshot of the hub has it.

    Parameters
    ----------
    family
        Of which released model.
    folder
        Where; made if it is not there.
    split
        Words that take more than one token, with their parts; None: `SPLIT`.
    language
        Changes of the language model's configuration (`LANGUAGE`): its true width, say.

    Returns
    -------
    Path
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    build = {
        "internvl": _internvl,
        "llava": _llava,
        "llava_next": _llava_next,
        "llava_onevision": _onevision,
        "qwen2_5_vl": _qwen25,
        "qwen2_vl": _qwen,
    }[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model, processor = build(split, language)
        _widen(model)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def _widen(model: Any) -> None:
    """Draw weights so large that every token matters."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2:
                fan = weight[0].numel() if "embed_tokens" not in name else 1
                weight.normal_().mul_(fan**-0.5)


def _onevision(split: Split, language: dict[str, Any]) -> tuple[Any, Any]:
    words = tokenizer(LLAVA_TEMPLATE, split)
    config = transformers.LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", "vocab_size": len(words), **LANGUAGE, **language},
        vision_config={
            "model_type": "siglip_vision_model",
            "image_size": 384,
            "patch_size": 14,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 48,
            "vision_use_head": False,
        },
        image_grid_pinpoints=PINPOINTS,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        video_token_id=words.convert_tokens_to_ids("<video>"),
        tie_word_embeddings=False,
    )
    processor = transformers.LlavaOnevisionProcessor(
        image_processor=transformers.LlavaOnevisionImageProcessor(
            size={"height": 384, "width": 384}, image_grid_pinpoints=PINPOINTS
        ),
        tokenizer=words,
        video_processor=transformers.LlavaOnevisionVideoProcessor(),
        num_image_tokens=729,
        vision_feature_select_strategy="full",
        chat_template=LLAVA_TEMPLATE,
    )
    return transformers.LlavaOnevisionForConditionalGeneration(config), processor


CLIP = {
    "model_type": "clip_vision_model",
    "image_size": 336,
    "patch_size": 14,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
OF_CLIP: dict[str, Any] = {
    "patch_size": 14,
    "vision_feature_select_strategy": "default",
    "num_additional_image_tokens": 1,
}


def square(side: int) -> dict[str, Any]:
    """Return the sizes of an image processor that crops squares."""
    return {"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}


def classes_of(name: str) -> tuple[Any, ...]:
    """Return the library's configuration, model and processor of a family."""
    ends = ("Config", "ForConditionalGeneration", "Processor")
    return tuple(getattr(transformers, name + end) for end in ends)


def _llava(split: Split, language: dict[str, Any]) -> tuple[Any, Any]:
    words = llama_tokenizer(VICUNA_TEMPLATE, split)
    config = transformers.LlavaConfig(
        text_config={"model_type": "llama", "vocab_size": len(words), **LANGUAGE, **language},
        vision_config=CLIP,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        image_seq_length=576,
        tie_word_embeddings=False,
    )
    processor = transformers.LlavaProcessor(
        image_processor=transformers.CLIPImageProcessor(**square(336)),
        tokenizer=words,
        chat_template=VICUNA_TEMPLATE,
        **OF_CLIP,
    )
    return transformers.LlavaForConditionalGeneration(config), processor


def _llava_next(split: Split, language: dict[str, Any]) -> tuple[Any, Any]:
    words = llama_tokenizer(MISTRAL_TEMPLATE, split)
    text = {"model_type": "mistral", "sliding_window": None, "vocab_size": len(words)}
    config = transformers.LlavaNextConfig(
        text_config={**text, **LANGUAGE, **language},
        vision_config=CLIP,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        tie_word_embeddings=False,
    )
    processor = transformers.LlavaNextProcessor(
        image_processor=transformers.LlavaNextImageProcessor(**square(336)),
        tokenizer=words,
        chat_template=MISTRAL_TEMPLATE,
        **OF_CLIP,
    )
    return transformers.LlavaNextForConditionalGeneration(config), processor


def _internvl(split: Split, language: dict[str, Any]) -> tuple[Any, Any]:
    names = dict(INTERNVL, turn="<|im_start|>")
    words = tokenizer(INTERNVL_TEMPLATE, split, names)
    config = transformers.InternVLConfig(
        text_config={"model_type": "qwen2", "vocab_size": len(words), **LANGUAGE, **language},
        vision_config={
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 48,
        },
        image_token_id=words.convert_tokens_to_ids("<IMG_CONTEXT>"),
        tie_word_embeddings=False,
    )
    processor = transformers.InternVLProcessor(
        image_processor=transformers.GotOcr2ImageProcessor(size={"height": 448, "width": 448}),
        tokenizer=words,
        video_processor=transformers.InternVLVideoProcessor(),
        chat_template=INTERNVL_TEMPLATE,
    )
    return transformers.InternVLForConditionalGeneration(config), processor


def _qwen25(split: Split, language: dict[str, Any]) -> tuple[Any, Any]:
    vision = {
        "out_hidden_size": language.get("hidden_size", LANGUAGE["hidden_size"]),
        "hidden_size": 32,
        "intermediate_size": 48,
        "fullatt_block_indexes": [0],
    }
    return _qwen(split, language, "Qwen2_5_VL", vision)


def _qwen(
    split: Split,
    language: dict[str, Any],
    name: str = "Qwen2VL",
    vision: dict[str, Any] | None = None,
) -> tuple[Any, Any]:
    configuration, architecture, prepare = classes_of(name)
    words = tokenizer(QWEN_TEMPLATE, split)
    number = words.convert_tokens_to_ids
    text = {
        "vocab_size": len(words),
        **LANGUAGE,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]},
        **language,
    }
    vision = vision or {"embed_dim": 32, "hidden_size": text["hidden_size"], "mlp_ratio": 2}
    config = configuration(
        text_config=text,
        vision_config={
            **vision,
            "depth": 1,
            "num_heads": 2,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    processor = prepare(
        image_processor=transformers.Qwen2VLImageProcessor(min_pixels=3136, max_pixels=12845056),
        tokenizer=words,
        video_processor=transformers.Qwen2VLVideoProcessor(),
        chat_template=QWEN_TEMPLATE,
    )
    return architecture(config), processor
