"""The text-only twin, on a tiny random model."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tiny_vlms
from reference_engine import ReferenceEngine

from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.prompts import Reading, prompts
from bindscope.studies.binding_id.tasks.scenes import Rule, draw_pairs
from bindscope.studies.binding_id.vlm.engine import Options, VisionLanguageEngine
from bindscope.studies.binding_id.vlm.loading import adapt
from bindscope.studies.binding_id.vlm.state import token_map


def test_the_text_only_twin_runs_on_spans_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Things are words: both engines give the same rows, and so do batches of one row."""
    reading = Reading(Rule(), "short", text_only=True)
    words = draw_pairs(reading.rule, "test", 1, 0).base.words
    more = [w for kind in ("shape", "color", "item") for w in words.get(kind)]
    more += [w.lower() for w in words.items]
    every = dict.fromkeys((*tiny_vlms.WORDS, *more))
    monkeypatch.setattr(tiny_vlms, "NUMBER", {word: i for i, word in enumerate(every)})
    model, processor = tiny_vlms.llava(vocab_size=len(every))
    adapter = adapt("tiny", model, processor, "cpu")
    spec = {
        "task": {"layout": "pair", "things": 2, "order": "left_first", "shared": "none",
                 "distinguished_by": "slot", "rows": 3, "estimation_rows": 2, "seed": 0},
        "template": "short", "text_only": True, "resamples": 5,
        "batch_size": 3, "seed": 0, "experiments": ["factorizability"],
    }  # fmt: skip
    options = Options(images=False)
    render = partial(prompts, form=reading.form)
    results = [
        run(kind(adapter, render, options), None, spec)
        for kind in (VisionLanguageEngine, ReferenceEngine)
    ]
    logs = [result.answers["factorizability"] for result in results]
    single = VisionLanguageEngine(adapter, render, Options(images=False, batch_size=1))
    answers = run(single, None, {**spec, "batch_size": 1}).answers["factorizability"]
    np.testing.assert_allclose(answers, logs[0], atol=1e-5)
    assert logs[0].shape == (3, 10, 4, 4)
    np.testing.assert_allclose(*logs, atol=1e-5)
    rows = {row["condition"]: row for row in results[0].rows if row["query"] == "all"}
    right = logs[0][:, 0, :2].argmax(axis=-1) == [0, 1]
    assert rows["none"]["share"] == pytest.approx(right.mean())
    # All that tells the things was replaced, and the answers are others.
    assert np.abs(logs[0][:, 3] - logs[0][:, 0]).max() > 1e-3
    # The words that describe a thing are its tokens.
    engine = VisionLanguageEngine(adapter, partial(prompts, form=reading.form), options)
    scenes = draw_pairs(reading.rule, "test", 3, 0).base
    state = engine.contexts(scenes, None)
    ids = state.inputs.ids.gather(1, token_map(state, "object", 1))
    names, kinds = list(every), ["color", "shape"]
    assert [[names[i] for i in row] for row in ids.tolist()] == [
        [words.get(kind)[getattr(scenes, kind)[row, 1]] for kind in kinds]  # type: ignore[arg-type]
        for row in range(3)
    ]
