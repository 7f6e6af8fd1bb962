"""The study of concepts in a configuration: jobs, messages, what planning loads, the chapter."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jobs_by_hand import loaded

from bindscope.config.loading import load_config
from bindscope.config.root import Config
from bindscope.core.errors import ConfigError
from bindscope.studies.build import build

ENTRY: dict[str, Any] = {
    "name": "e",
    "encoder": {"kind": "product"},
    "spaces": [[8, 8]],
    "coverages": [0.5],
}


def config(**fields: Any) -> dict[str, Any]:
    return {"datasets": [], "studies": {"concepts": {"dual_encoders": [ENTRY | fields]}}}


def test_a_space_and_a_query_pool_are_a_job_and_coverages_and_seeds_share_one() -> None:
    content = config(spaces=[[8, 8], [4, 4, 4]], query_pools=["train_only", "all"], seeds=[0, 1, 2])
    graph = build(Config.model_validate(content))
    jobs = graph.select("dual_encoder")
    assert [(job.wildcards["space"], job.wildcards["query_pool"]) for job in jobs] == [
        ("8x8", "train_only"),
        ("8x8", "all"),
        ("4x4x4", "train_only"),
        ("4x4x4", "all"),
    ]
    assert all(job.path() in graph.leaves() for job in jobs)
    assert json.loads(jobs[0].spec)["seeds"] == [0, 1, 2]
    assert len(graph.select("figure", figure="concept_coverage")) == 1
    more = build(Config.model_validate(config(spaces=[[8, 8], [4, 4, 4], [9, 9]], seeds=[0, 1, 2])))
    assert {jobs[0].key, jobs[2].key} < {job.key for job in more.select("dual_encoder")}


def test_without_dual_encoders_there_is_no_table_of_them() -> None:
    graph = build(Config.model_validate({"datasets": [], "studies": {"concepts": {}}}))
    assert not graph.select("dual_encoder", "table", "figure")


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"coverages": [0.1]}, "0.1 of 64 objects are 6, fewer than the 8 values of a feature group"),
    ({"coverages": [0.985]}, "leaves 1 for testing"),
    ({"encoder": {"kind": "transformer", "width": 10, "heads": 4}}, "4 do not divide the width"),
    ({"encoder": {"kind": "prodct"}}, "unknown kind 'prodct'"),
]


@pytest.mark.parametrize(("fields", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_mistake_is_named_with_what_to_do(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load_config(config(**fields), "c.yaml")
    assert "studies.concepts.dual_encoders.0" in caught.value.problem


def test_planning_loads_neither_torch_nor_what_draws() -> None:
    imported = loaded(
        "import bindscope.studies.concepts.study, bindscope.studies.concepts.products"
    )
    assert imported <= {"pydantic", "numpy"}
