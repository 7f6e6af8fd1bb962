"""Questions about a user's own photos: hidden things against a brute-force masked forward pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_vlms
import torch
from PIL import Image

from bindscope.config.loading import load_config
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError, InputError
from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_id.names import AGAINST, HIDDEN
from bindscope.studies.binding_id.tasks.photos import Answered, answer, elsewhere, rows_of
from bindscope.studies.binding_id.tasks.records import read_records
from bindscope.studies.binding_id.vlm.engine import VisionLanguageEngine
from bindscope.studies.binding_id.vlm.loading import adapt
from bindscope.studies.build import build

RATES = Inputs(resources={"claims": "resources/reference/claims.csv"})

SIDE = 32
# Of an image of 32 px the model has 2 x 2 cells of 16 px, once in raster order and once with a
# token at the end of each row: the tokens of each quarter, counted from the first of the image.
QUARTERS = {(0, 0): (0, 4), (16, 0): (1, 5), (0, 16): (2, 7), (16, 16): (3, 8)}
CONTEXT = "The green object contains item J . The red object contains item Q ."
ASKED = [" Which item is in the left object ? item", " Which item is in the right object ? item"]


def record(corners: Any, questions: Any = ((0, 0), (1, 1)), **changes: Any) -> dict[str, Any]:
    """A record of two things in quarters of an image; questions as (text, role)."""
    things = [
        {"box": [x, y, x + 16, y + 16], "mention": f"{color} object", "item": item}
        for (x, y), color, item in zip(corners, ("green", "red"), "JQ", strict=True)
    ]
    entries = [{"text": ASKED[text], "role": role} for text, role in questions]
    return {"image": "a.png", "context": CONTEXT, "things": things, "questions": entries, **changes}


def written(folder: Path, *records: dict[str, Any]) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "a.png")
    path = folder / "records.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in records))
    return path


@pytest.fixture(scope="module")
def engine() -> VisionLanguageEngine:
    model, processor = tiny_vlms.llava()
    return VisionLanguageEngine(adapt("tiny", model, processor, "cpu"), tiny_vlms.template)


def brute_force(engine: VisionLanguageEngine, picture: Any, question: str, hidden: Any) -> Any:
    """The library's own forward pass on the whole text, the question masked by hand."""
    processor = engine.adapter.processor
    texts = [f"<image>\n{CONTEXT}{tail}" for tail in ("", question)]
    whole, before = (
        processor(text=[text], images=[picture], return_tensors="pt") for text in reversed(texts)
    )
    length, start = whole.input_ids.shape[1], before.input_ids.shape[1]
    image = int((whole.input_ids[0] == tiny_vlms.NUMBER["<image>"]).nonzero()[0])
    mask = torch.full((length, length), -1e30).triu(1)
    for token in hidden:
        mask[start:, image + token] = -1e30
    logits = engine.adapter.model(**{**whole, "attention_mask": mask[None, None]}).logits[0, -1]
    items = [tiny_vlms.NUMBER[item] for item in "JQ"]
    return logits.double().log_softmax(-1)[items].numpy()


def test_hidden_things_are_masked_forward_passes(
    engine: VisionLanguageEngine, tmp_path: Path
) -> None:
    corners = ((16, 16), (0, 0))
    (photo,) = read_records(written(tmp_path, record(corners)))
    logs = answer(engine, photo, np.random.default_rng(1)).logs
    picture = photo.picture()
    free = [tokens for corner, tokens in QUARTERS.items() if corner not in corners]
    for i, role in enumerate(photo.roles):
        plain, hidden, moved = logs[i]
        np.testing.assert_allclose(plain, brute_force(engine, picture, ASKED[i], ()), atol=1e-5)
        quarter = QUARTERS[corners[role]]
        np.testing.assert_allclose(
            hidden, brute_force(engine, picture, ASKED[i], quarter), atol=1e-5
        )
        # Elsewhere is one of the two quarters where nothing is.
        expected = [brute_force(engine, picture, ASKED[i], tokens) for tokens in free]
        assert min(np.abs(moved - reference).max() for reference in expected) < 1e-5
        assert np.abs(np.stack([hidden, moved]) - plain).min() > 1e-4
        assert np.abs(np.diff(expected, axis=0)).max() > 1e-4


def test_a_box_across_cells_is_hidden_whole_and_its_control_alike(
    engine: VisionLanguageEngine, tmp_path: Path
) -> None:
    """Half of each cell on the left; the only place as large, without the thing, is the right."""
    things = [
        {"box": [0, 8, 16, 24], "mention": name, "item": item}
        for name, item in (("green object", "J"), ("red object", "Q"))
    ]
    (photo,) = read_records(written(tmp_path, record(((0, 0), (0, 0)), [(0, 0)], things=things)))
    ((_, hidden, moved),) = answer(engine, photo, np.random.default_rng(0)).logs
    for logs, corners in ((hidden, ((0, 0), (0, 16))), (moved, ((16, 0), (16, 16)))):
        tokens = [token for corner in corners for token in QUARTERS[corner]]
        expected = brute_force(engine, photo.picture(), ASKED[0], tokens)
        np.testing.assert_allclose(logs, expected, atol=1e-5)


def test_a_place_elsewhere_is_as_large_and_shows_no_thing(
    engine: VisionLanguageEngine, tmp_path: Path
) -> None:
    (photo,) = read_records(written(tmp_path, record(((0, 0), (16, 0)))))
    read = engine.adapter.read([photo.prompt.context], photo.picture()[None])
    for seed in range(5):
        box = elsewhere(photo, 0, read.image, np.random.default_rng(seed))
        assert box is not None
        assert (box[2:] - box[:2] == 16).all()
        assert box[1] == 16  # its tokens are those of the lower half
    (full,) = read_records(
        written(
            tmp_path,
            record(((0, 0), (16, 0)))
            | {
                "things": [
                    {"box": [0, 0, 32, 16], "mention": "green object", "item": "J"},
                    {"box": [0, 16, 32, 32], "mention": "red object", "item": "Q"},
                ]
            },
        )
    )
    assert elsewhere(full, 0, read.image, np.random.default_rng(0)) is None
    answers = answer(engine, full, np.random.default_rng(0))
    assert np.isfinite(answers.right()[:2]).all()
    assert np.isnan(answers.right()[2])


def test_rows_count_records_and_pair_them() -> None:
    """Three records by hand, the last without a place elsewhere."""
    sure, wrong, none = [0.0, -3.0], [-3.0, 0.0], [np.nan, np.nan]
    answered = [
        Answered(np.array([[sure, wrong, sure], [wrong, sure, wrong]]), (0, 1)),  # 1, 0, 1
        Answered(np.array([[sure, wrong, sure]]), (0,)),  # 1, 0, 1
        Answered(np.array([[sure, sure, none]]), (0,)),  # 1, 1, no place
    ]
    rows = {row["how"]: row for row in rows_of(answered, 200, 0)}
    assert {name: row["n_rows"] for name, row in rows.items()} == {
        HIDDEN[0]: 3,
        HIDDEN[1]: 3,
        HIDDEN[2]: 2,
        AGAINST: 2,
    }
    assert [rows[name]["share"] for name in rows] == pytest.approx([1, 1 / 3, 1, 0])
    assert rows[HIDDEN[1]]["change"] == pytest.approx(-2 / 3)
    assert rows[HIDDEN[2]]["change"] == 0
    assert rows[AGAINST]["change"] == -1
    assert rows[AGAINST]["change_low"] == -1  # all rows agree, and the interval has a width
    assert rows[AGAINST]["change_high"] > -1
    assert "change" not in rows["none"]
    assert rows["none"]["lead"] == 3
    ties = Answered(np.zeros((1, 3, 2)), (0,))
    assert ties.right().tolist() == [0.5, 0.5, 0.5]


BAD: list[tuple[dict[str, Any], str]] = [
    (
        record(
            ((0, 0), (16, 0)),
            things=[
                {"box": [0, 0, 16, 16], "mention": "green object", "item": "item J"},
                {"box": [16, 0, 32, 16], "mention": "red object", "item": "item Q"},
            ],
        ),
        "the answer ' item J': it is 2 tokens",
    ),
    (record(((0, 0), (16, 0))) | {"questions": [{"text": "", "role": 0}]}, "changes the tokens"),
    (record(((0, 0), (16, 0)), context=f"{CONTEXT} <image>"), "stands before the image"),
]


@pytest.mark.parametrize(("bad", "words"), BAD, ids=[words for _, words in BAD])
def test_a_record_that_the_model_cannot_read_is_named(
    bad: dict[str, Any], words: str, engine: VisionLanguageEngine, tmp_path: Path
) -> None:
    path = written(tmp_path, record(((0, 0), (16, 0))), bad)
    with pytest.raises(InputError, match=words) as caught:
        answer(engine, read_records(path)[1], np.random.default_rng(0))
    assert caught.value.where.startswith(f"{path}:2")
    assert caught.value.remedy


def config(folder: Path, model: Path, **suite: Any) -> dict[str, Any]:
    section = {
        "records": [{"name": "mine", "folder": str(folder)}],
        "tasks": [{"name": "pairs"}],
        "oracles": [{"name": "by-slot", "mechanism": "slot"}],
        "models": [{"name": "tiny", "source": f"hf:path:{model}"}],
        "suites": [
            {"name": "own", "records": ["mine"], "models": ["tiny"], "resamples": 50, **suite}
        ],
    }
    return {"datasets": [], "studies": {"binding_id": section}}


def test_photos_are_part_of_the_key_and_what_counts_for_tasks_alone_is_not(tmp_path: Path) -> None:
    """The rows that a job makes of them are tested with those of `bindscope.binding_ids`."""
    tiny_vlms.llava()[0].save_pretrained(tmp_path / "model")
    (tmp_path / "photos").mkdir()
    written(tmp_path / "photos", record(((0, 0), (16, 16))), record(((16, 0), (0, 16)), [(0, 1)]))

    def key(**suite: Any) -> str:
        content = config(tmp_path / "photos", tmp_path / "model", **suite)
        (job,) = build(Config.model_validate(content)).select("binding_id_interventions")
        return job.key

    before = key()
    assert key(window=3) == before
    Image.fromarray(np.zeros((SIDE, SIDE, 3), np.uint8)).save(tmp_path / "photos" / "a.png")
    assert key() != before


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"models": [], "tasks": ["pairs"], "oracles": ["by-slot"]}, "only models of transformers"),
    ({"oracles": ["by-slot"]}, "read no records"),
]


@pytest.mark.parametrize(("suite", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_a_suite_that_cannot_ask_them_is_refused(
    suite: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(config(tmp_path, tmp_path, **suite), "c.yaml")
