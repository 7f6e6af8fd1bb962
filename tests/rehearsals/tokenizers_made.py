"""Tokenizers that are trained on the spot, in the files of released ones.

Words of a group do not all take one token: `frustum`, `torus`, `cyan` and `azure` take more than
`prism` and `red`, as in tokenizers of released models some words of every such group do.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from string import ascii_letters

from hub_vlms import QWEN2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from bindscope.scenes.sprite_palette import COLORS, SHAPES
from bindscope.studies.binding_id.tasks.scenes import COMPASS

SPLIT = ("frustum", "torus", "cyan", "azure")
TEXT = """
Answer the question based on the image below. Keep the answer short. Context: text user assistant
system The object contains item Which is in the? left right has There a and you are helpful large
small rubber metal Question one of two picture shows
"""


def _corpus(more: Sequence[str] = ()) -> list[str]:
    """Return texts in which every word but those to be split is common."""
    named = {word for known in (COLORS, SHAPES) for words in known.values() for word in words}
    words = sorted({*named, *COMPASS, *TEXT.split(), *ascii_letters, *more} - set(SPLIT))
    texts = [f"{word} {word} {word.capitalize()} {word}" for word in words for _ in range(20)]
    return [
        *texts,
        *(" ".join(words),) * 5,
        ": \n\n . .\n ?  ",
        *("a.\n\nb:\n\nc\nd" for _ in range(50)),
    ]


def write_qwen(folder: Path, special: Sequence[str], template: str) -> dict[str, int]:
    """Write a byte-level tokenizer in Qwen2's files; return the numbers of its special tokens."""
    raw = Tokenizer(models.BPE())
    raw.normalizer = normalizers.NFC()
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    raw.train_from_iterator(
        _corpus(), trainers.BpeTrainer(initial_alphabet=alphabet, min_frequency=5, vocab_size=4000)
    )
    raw.add_special_tokens(list(special))
    _write(folder, raw)
    added = {
        str(raw.token_to_id(token)): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for token in special
    }
    config = {
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "bos_token": None,
        "additional_special_tokens": list(special[1:]),
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 32768,
        "pad_token": special[0],
        "padding_side": "right",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    return {token: raw.token_to_id(token) for token in special}


def write_clip(folder: Path, words: Sequence[str]) -> int:
    """Write a tokenizer in CLIP's files, `words` among its own; return how many tokens it has.

    As in CLIP's, the last two are the begin and the end of a text.
    """
    raw = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    raw.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw.train_from_iterator(
        _corpus(words),
        trainers.BpeTrainer(
            initial_alphabet=letters, end_of_word_suffix="</w>", min_frequency=5, vocab_size=4000
        ),
    )
    raw.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
    content = json.loads(raw.to_str())["model"]
    vocabulary = {**content["vocab"]}
    for letter in letters:  # as in CLIP's, every byte also as the end of a word
        vocabulary.setdefault(f"{letter}</w>", len(vocabulary))
    for token in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary.pop(token, None)
    vocabulary = {token: i for i, token in enumerate(vocabulary)}
    for token in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[token] = len(vocabulary)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["merges"]]
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    marks = {
        "bos_token": "<|startoftext|>",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>",
    }
    (folder / "special_tokens_map.json").write_text(json.dumps(marks))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                **marks,
                "add_prefix_space": False,
                "do_lower_case": True,
                "errors": "replace",
                "model_max_length": 77,
                "tokenizer_class": "CLIPTokenizer",
            }
        )
    )
    return len(vocabulary)


def _write(folder: Path, raw: Tokenizer) -> None:
    raw.save(str(folder / "tokenizer.json"))
    content = json.loads(raw.to_str())["model"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["merges"]]
    (folder / "vocab.json").write_text(json.dumps(content["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
