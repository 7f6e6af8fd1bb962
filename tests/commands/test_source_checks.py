"""Sources of models that do not exist are refused before a run, each with one message."""

from pathlib import Path

import pytest

from bindscope.commands.sources import refuse_missing_sources
from bindscope.core.errors import ConfigError


def models(*sources: str) -> dict[str, list[dict[str, str]]]:
    return {"models": [{"name": f"m{i}", "source": text} for i, text in enumerate(sources)]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "timm:vit_smal_patch16_224.augreg_in21k",
            "timm has no model 'vit_smal_patch16_224'; did you mean 'vit_small_patch16_224'?",
        ),
        ("path:/no/such/folder", "there is no file or folder /no/such/folder"),
        ("hf:path:/no/such/folder", "there is no file or folder /no/such/folder"),
        (
            "timm:vit_tiny_patch16_224:path:/no.safetensors",
            "there is no file or folder /no.safetensors",
        ),
    ],
)
def test_a_source_that_does_not_exist_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        refuse_missing_sources(models("zoo:matching-none-0", text), "my.yaml")
    assert str(raised.value).startswith(f"my.yaml: models.1.source: {message}\n  remedy: ")


def test_the_first_source_that_is_refused_follows_all_that_may_exist(tmp_path: Path) -> None:
    sources = (
        "timm:vit_small_patch16_224.augreg_in21k",
        "timm:vit_small_patch16_224@0123abc",
        "timm:vit_tiny_patch16_224_in21k",  # a name of an older timm, which it still takes
        f"timm:vit_tiny_patch16_224:path:{tmp_path}",
        f"hf:path:{tmp_path}",
        "hf:facebook/dinov2-large@47b73eefe95e8d44ec3623f8890bd894b6ea2d6c",
        "baseline:pixels",
    )
    refuse_missing_sources({}, "my.yaml")
    with pytest.raises(ConfigError, match=rf"my\.yaml: models\.{len(sources)}\.source: "):
        refuse_missing_sources(models(*sources, "path:/no/such/folder"), "my.yaml")
