"""`bindscope.binding_ids`: the same rows as the jobs', models left as they were, bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import hub_vlms
import numpy as np
import pytest
import tiny_vlms
import torch
import transformers
from jobs_by_hand import job_by_hand, script

from bindscope import binding_ids, example
from bindscope.arrays.result import MOST_LINES
from bindscope.config.root import Config
from bindscope.core.errors import BindscopeError
from bindscope.core.files import canonical_json
from bindscope.studies.binding_id.plans import Plan
from bindscope.studies.binding_id.vlm.edits import Frozen
from bindscope.studies.build import build

OF_A_RUN = {"suite", "task", "model", "origin", "spec_key", "code_key"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hub_vlms.save("qwen2_vl", tmp_path_factory.mktemp("hub"))


def opened(folder: Path) -> tuple[Any, Any]:
    """A model and its processor as a user loads them."""
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder)
    processors: Any = transformers.AutoProcessor
    return model, processors.from_pretrained(folder)


def rows_of_jobs(folder: Path, section: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows that the jobs of a suite write, by table, without what only a run has."""
    graph = build(Config.model_validate({"datasets": [], "studies": {"binding_id": section}}))
    by_table: dict[str, list[dict[str, Any]]] = {}
    for job in graph.select("binding_id_estimates", "binding_id_interventions"):
        script(job.rule).main(job_by_hand(job, folder))
        estimates = job.rule == "binding_id_estimates"
        name = "binding_id_vectors" if estimates else "binding_id"
        lines = (folder / job.path("vectors" if estimates else "rows")).read_text().splitlines()
        rows = [{k: v for k, v in json.loads(line).items() if k not in OF_A_RUN} for line in lines]
        by_table.setdefault(name, []).extend(rows)
    return by_table


def written(rows: Any) -> Any:
    """Rows as they are read from a job's file."""
    return json.loads(canonical_json(rows))


def test_a_runs_rows_are_those_of_the_function(hub: Path, tmp_path: Path) -> None:
    experiments = ["factorizability", "positions", "mean"]
    expected_rows = rows_of_jobs(
        tmp_path,
        {
            "tasks": [{"name": "as-published", "rows": 3, "estimation_rows": 6}],
            "models": [{"name": "m", "source": f"hf:path:{hub}", "batch_size": 2}],
            "suites": [
                {
                    "name": "s",
                    "tasks": ["as-published"],
                    "models": ["m"],
                    "batch_size": 2,
                    "experiments": experiments,
                    "device": "cpu",
                }
            ],
        },
    )
    model, processor = opened(hub)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    result = binding_ids(model, processor, n=3, batch_size=2)
    assert {name: written(rows) for name, rows in result.rows.items()} == expected_rows
    assert len(result.table) == len(expected_rows["binding_id"]) > 200
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert result.notes == ()
    assert len(str(result).splitlines()) <= MOST_LINES


def photos(folder: Path, n: int = 3) -> list[dict[str, Any]]:
    """Records in memory: noise, and two things in opposite quarters."""
    draw = np.random.default_rng(0)
    corners = [((0, 0), (16, 16)), ((16, 0), (0, 16)), ((0, 16), (16, 16))]
    return [
        {
            "image": draw.integers(0, 256, (32, 32, 3)).astype(np.uint8),
            "context": "The green object contains item J . The red object contains item Q .",
            "things": [
                {"box": (x, y, x + 16, y + 16), "mention": f"{color} object", "item": item}
                for (x, y), color, item in zip(corners[i], ("green", "red"), "JQ", strict=True)
            ],
            "questions": [
                {"text": " Which item is in the left object ? item", "role": 0},
                {"text": " Which item is in the right object ? item", "role": 1},
            ],
        }
        for i in range(n)
    ]


def test_images_of_ones_own_have_the_rows_of_a_run(tmp_path: Path) -> None:
    from PIL import Image

    model, processor = tiny_vlms.llava()
    for part in (model, processor):
        part.save_pretrained(tmp_path / "model")
    records = photos(tmp_path)
    with_boxes = binding_ids(model, processor, records, random_state=3)
    assert "blind" in with_boxes.notes[0]

    folder = tmp_path / "photos"
    folder.mkdir()
    for i, record in enumerate(records):
        Image.fromarray(record["image"]).save(folder / f"{i}.png")
        record["image"] = f"{i}.png"
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    (folder / "records.jsonl").write_text(text)
    expected_rows = rows_of_jobs(
        tmp_path,
        {
            "records": [{"name": "mine", "folder": str(folder)}],
            "models": [{"name": "m", "source": f"hf:path:{tmp_path / 'model'}"}],
            "suites": [
                {"name": "s", "records": ["mine"], "models": ["m"], "seed": 3, "device": "cpu"}
            ],
        },
    )
    assert written(with_boxes.rows["binding_id"]) == expected_rows["binding_id"]
    from_file = binding_ids(model, processor, folder / "records.jsonl", random_state=3)
    assert written(from_file.rows) == written(with_boxes.rows)
    assert "hidden from the question" in str(with_boxes)
    assert with_boxes.plot().axes


def test_a_row_is_compared_with_the_models_own_pass(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions that stand too far behind their contexts: of drawn scenes, records and jobs."""
    monkeypatch.setattr(Frozen, "next_positions", lambda self: self.positions.amax((0, 2)) + 99)
    parts = opened(hub)
    tasks = [{"name": "t", "rows": 2}]
    section = {
        "tasks": tasks,
        "models": [{"name": "m", "source": f"hf:path:{hub}"}],
        "suites": [
            {
                "name": "s",
                "tasks": ["t"],
                "models": ["m"],
                "device": "cpu",
                "experiments": ["factorizability"],
            }
        ],
    }
    calls = [
        lambda: binding_ids(*parts, n=2),
        lambda: binding_ids(*tiny_vlms.llava(), photos(tmp_path)),
        lambda: rows_of_jobs(tmp_path, section),
    ]
    for call in calls:
        with pytest.raises(BindscopeError, match="from those of its own pass"):
            call()


def test_what_rounding_changes_is_measured_and_noted(hub: Path, tmp_path: Path) -> None:
    model, processor = tiny_vlms.llava()
    assert binding_ids(model, processor, photos(tmp_path)).notes[-1].startswith("Images")
    (*_, note) = binding_ids(model.to(torch.bfloat16), processor, photos(tmp_path)).notes
    assert re.search(r"differ by up to \S+ nats", note)
    model, processor = opened(hub)
    # As rounding does on most types of CPU, but not on all: the answer depends on what is computed
    # along with it.
    network = model.model.language_model.layers[0].mlp
    network.register_forward_hook(lambda _, __, states: states * (1 + states.shape[1] / 100))
    (note,) = binding_ids(model.to(torch.bfloat16), processor, n=2).notes
    assert "computes in bfloat16" in note
    assert 0 < float(re.search(r"differ by up to (\S+) nats", note)[1]) < 1  # type: ignore[index]


def hooks(model: torch.nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


def test_a_model_is_as_it_was_after_an_interruption(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, processor = opened(hub)
    model.train()
    training = {name: module.training for name, module in model.named_modules()}
    answered, calls = Plan.answered, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(model.training)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return answered(*arguments)

    monkeypatch.setattr(Plan, "answered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        binding_ids(model, processor, n=3, batch_size=2, experiments=["factorizability"])
    assert calls == [False, False]
    assert {name: module.training for name, module in model.named_modules()} == training
    assert hooks(model) == 0
    assert all(weight.requires_grad for weight in model.parameters())


def test_the_example_shows_what_was_planted() -> None:
    data = example("two-things")
    result = binding_ids(data.model, data.processor, data.scenes, n=40)
    rows = result.table[result.table["candidate"].eq("expected")]
    rows = rows.set_index(["experiment", "how", "groups"])["own"]
    truth = data.truth
    assert 1 - rows["mean", "added", "object"] == truth["objects swap"]
    assert 1 - rows["mean", "added", "item"] == truth["items swap"]
    assert 1 - rows["positions", "moved", "object"].min() == truth["keys swap"]
    assert result.best["condition"] == "O"
    verdicts = result.claims.set_index("claim")["verdict"]
    assert (
        verdicts[[name for name in verdicts.index if "swaps their items" in name]].eq("holds").all()
    )
    assert "nothing about a trained model" in str(result)
    assert "not significant with 40 rows: a perfect model needs up to" in str(result)
    assert "<table" in result._repr_html_()
    (axes,) = result.plot().axes
    assert [text.get_text() for text in axes.texts] == ["100.0"] * 7


def test_experiments_with_tables_of_their_own_are_rows_of_one_table() -> None:
    data = example("two-things")
    three = {"layout": "sprites", "things": 3, "order": "independent"}
    result = binding_ids(data.model, None, three, experiments=["mixture", "heads"], n=8)
    assert {*result.table["experiment"]} == {"mixture", "heads"}
    assert "mixture" in str(result)
    assert result.plot().axes
    assert result.claims["claim"].str.contains("by slot").any()


def bad_calls(hub: Path, folder: Path) -> dict[str, tuple[Any, ...]]:
    """Calls that are refused: arguments, options, and words of the message."""
    oracle = example("two-things").model
    tiny = tiny_vlms.llava()
    whole = opened(hub)

    broken = opened(hub)
    broken[0].lm_head.weight.data[:] = float("nan")
    records = photos(folder)
    boxless = [
        {**record, "things": [{"mention": "green object", "item": "J"}] * 2} for record in records
    ]
    fused = opened(hub)
    fused[0].model.language_model.config._attn_implementation = "flash_attention_2"
    return {
        "attention without masks": (fused, {"n": 2}, "ignores masks"),
        "a tokenizer instead of a processor": ((whole[0], whole[1].tokenizer), {}, "processor"),
        "not finite": (broken, {"n": 2, "batch_size": 2}, "not finite"),
        "no boxes": ((*tiny, boxless), {}, "no `box`"),
        "one image": ((*tiny, records[:1]), {}, "holds 1"),
        "one scene": ((oracle, None), {"n": 1}, "two scenes"),
        "unknown experiment": ((oracle, None), {"experiments": ["means"]}, "did you mean 'mean'"),
        "unknown option": ((oracle, None, {"layouts": "grid"}), {}, "did you mean 'layout'"),
        "too many": ((oracle, None, {"things": 3}), {}, "do not fit into the 2 slots"),
        "undecidable": ((oracle, None), {"experiments": ["mixture"]}, "3 or 4 objects"),
        "slot or order": (
            (oracle, None, {"layout": "grid", "things": 3}),
            {"experiments": ["mixture"], "n": 4},
            "give its task `order: independent`",
        ),
        "pictures for an oracle": ((oracle, None, records), {}, "reads no images"),
        "replacing in pictures": ((*tiny, records), {"experiments": ["mean"]}, "second image"),
    }


def test_bad_input_is_one_line_with_a_remedy(hub: Path, tmp_path: Path) -> None:
    for name, (arguments, options, words) in bad_calls(hub, tmp_path).items():
        with pytest.raises(BindscopeError, match=re.escape(words)) as caught:
            binding_ids(*arguments, **options)
        assert caught.value.where.startswith("bindscope.binding_ids"), name
        assert caught.value.remedy, name
        assert "\n" not in caught.value.problem, name
