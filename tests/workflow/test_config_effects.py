"""The last column of config/README.md against the hand-written table of reruns."""

from __future__ import annotations

import re

from test_config_keys import TABLE

from bindscope.config.effects import ALWAYS, EFFECTS, effect
from bindscope.config.root import Config
from bindscope.config.structure import keys, labels_of, variants


def owners() -> dict[str, str]:
    """Map every key's path to its `Class.field`."""
    found = {path: f"Config.{path}" for path in Config.model_fields}
    for path, field in keys(Config):
        by_model = {model: label for label, model in labels_of(field.annotation).items()}
        models = variants(field.annotation)
        for model in models:
            label = f"<{by_model[model]}>" if len(models) > 1 else ""
            for prefix in (path, f"{path}[]"):
                found |= {f"{prefix}{label}.{name}": f"{model.__name__}.{name}"
                          for name in model.model_fields}  # fmt: skip
    return found


def test_no_key_recomputes_more_than_the_page_says() -> None:
    by_path = owners()
    entries = [
        (path, by_path[path]) for path, _ in keys(Config)
        if "." in path and not by_path[path].startswith("SplitCounts.")
    ]  # fmt: skip
    assert len(entries) > 100
    wrong = {
        path: sorted(more)
        for path, key in entries
        if (more := TABLE[key][2] - ALWAYS - effect(path).rules)
    }
    assert not wrong


def test_every_effect_is_used() -> None:
    paths = [path for path, _ in keys(Config) if "." in path]
    plain = [re.sub(r"<[^>]*>", "", path) for path in paths]  # what a union's members share
    used = {effect(path).words for path in paths + plain}
    assert used == {entry.words for entry in EFFECTS.values()}
