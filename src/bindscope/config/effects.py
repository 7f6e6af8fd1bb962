"""What a change of each key recomputes, for config/README.md.

tests/workflow/test_config_effects.py holds it against what the graph says.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Effect(NamedTuple):
    """What is made anew when a key changes.

    Attributes
    ----------
    words
        For people, in config/README.md.
    rules
        The Snakemake rules whose products may change, besides `ALWAYS`.
    """

    words: str
    rules: frozenset[str]


def _effect(words: str, rules: str) -> Effect:
    return Effect(words, frozenset(rules.split()))


# Follow any change at all; cheap.
ALWAYS = frozenset(
    {
        "table_priors",
        "table_scene_statistics",
        "table_binding_information",
        "table_attention",
        "figure",
        "report",
    }
)

_CODES = "codes anchors labels"
_ACTIVATIONS = "pooled patches index fit attention"
_READ = (
    "download records record_codes record_scenes counted_priors counted_anchors assignment_priors"
)
_DATASET = _effect(
    "all of this dataset",
    f"{_CODES} priors scenes scene_statistics {_READ} training encoded truth null {_ACTIVATIONS}",
)
_RENDER = _effect(
    "scenes and all that is seen of them",
    f"scenes scene_statistics record_scenes training {_ACTIVATIONS}",
)
_KNOWN = _effect("this encoder's output and its fits", "encoded truth index fit")
_TRAINED = _effect("this model's training, activations and fits", f"training {_ACTIVATIONS}")
_LOADED = _effect("this model's activations and fits", f"weights {_ACTIVATIONS}")
_PROBE = _effect("this probe's fits", "fit null attention")
_NEW_FITS = Effect("only the fits that are new, and what they need", _DATASET.rules)
_NOTHING = _effect("nothing", "")

# The longest prefix of a key's path decides; `<...>` is a union's label and may be left out.
EFFECTS: dict[str, Effect] = {
    "datasets[]": _DATASET,
    "datasets[].n_scenes": _effect(
        "labels, the shards that are new, training on them, fits",
        f"{_CODES} scenes scene_statistics {_READ} training encoded null {_ACTIVATIONS}",
    ),
    "datasets[].shard_size": _effect(
        "all of this dataset but labels and priors",
        f"scenes scene_statistics record_scenes training encoded {_ACTIVATIONS}",
    ),
    "datasets[].seed": _effect(
        "all of this dataset but its priors",
        f"{_CODES} scenes scene_statistics {_READ} training encoded null {_ACTIVATIONS}",
    ),
    "datasets[].render": _RENDER,
    "models[]": _effect("all of this model", f"encoded truth training {_ACTIVATIONS}"),
    "models[]<known-answer>": _KNOWN,
    "models[]<controlled>": _TRAINED,
    "models[]<controlled>.training.dataset": _effect(
        "that dataset's scenes; this model's training, activations and fits",
        f"codes scenes scene_statistics {_READ} training {_ACTIVATIONS}",
    ),
    "models[]<controlled>.extraction": _LOADED,
    "models[]<controlled>.input_px": _LOADED,
    "models[]<pretrained>": _LOADED,
    "models[]<python>": _LOADED,
    "models[].extraction.keep_patches": _effect(
        "this model's fits on patches", "patches_temporary index fit attention"
    ),
    "probes[]": _PROBE,
    "fits[]": _NEW_FITS,
    "fits[].name": _NOTHING,
    "information": _effect("every fit", "fit null attention"),
    "report": _NOTHING,
}


def effect(path: str) -> Effect:
    """Return the effect of the key at `path`, such as `models[]<controlled>.seed`."""
    plain = re.sub(r"<[^>]*>", "", path)
    keys = [key for key in EFFECTS if any(f"{p}.".startswith(f"{key}.") for p in (path, plain))]
    return EFFECTS[max(keys, key=len)]
