"""The last column of config/README.md: found by changing every key, held against the tables."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from test_config_keys import KEYS, expected

from bindscope.commands.documentation import generated, not_tried
from bindscope.commands.effects import COLLECTING, Effects, example, in_words, recomputed

pytestmark = pytest.mark.timeout(1200)  # thousands of graphs are built

# A change of one of these alone is never valid, or in nothing that is fitted.
CANNOT_BE_CHANGED_ALONE = [
    "Effects.later", "Effects.layers", "Effects.weights", "GenomeSource.feature",
    "GenomeSource.n_categories", "GenomeSource.n_values", "OwnCutouts.file", "PairSection.scenes",
    "PatchSampling.class_groups", "PhotosRenderer.kind", "PlantedEncoder.name",
    "PugSpareSource.path", "PugSpareSource.terms_accepted", "Report.figures",
    "SolidsRenderer.hidden", "ToyVision.source", "UsedScenes.test", "UsedScenes.train",
    "UsedScenes.val",
    "VisionLanguageModel.source", "Zoo.source",
]  # fmt: skip


@pytest.fixture(scope="module")
def effects() -> Effects:
    return recomputed(example())


@pytest.mark.slow
def test_generated_files_have_not_drifted(effects: Effects) -> None:
    for path, wanted in generated(Path("config"), effects).items():
        difference = difflib.unified_diff(
            path.read_text(encoding="utf-8").splitlines(),
            wanted.splitlines(),
            f"{path} (committed)",
            f"{path} (generated)",
            lineterm="",
        )
        lines = list(difference)
        assert not lines, "run `make docs` and commit:\n" + "\n".join(lines)


@pytest.mark.slow
def test_nearly_every_key_was_changed(effects: Effects) -> None:
    assert not_tried(effects) == CANNOT_BE_CHANGED_ALONE


@pytest.mark.slow
def test_no_key_recomputes_more_than_the_page_says(effects: Effects) -> None:
    by_name = {f"{section.rpartition('__')[2]}.{key}": e for (section, key), e in effects.items()}
    tried = [key for key in KEYS if key not in CANNOT_BE_CHANGED_ALONE]
    assert len(tried) > 250
    wrong = {key: more for key in tried if (more := expected(key)[2] - COLLECTING - by_name[key])}
    # The table's change is one, the page's are others: a key that says nothing must do nothing.
    assert not wrong


def test_rules_are_named_by_what_they_make() -> None:
    assert in_words(frozenset({"fit", "null", "codes", "patches", "pooled"})) == (
        "labels, activations, fits"
    )
    assert in_words(frozenset()) == "nothing"
