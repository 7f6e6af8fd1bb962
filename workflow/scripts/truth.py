"""Compute what a known-answer encoder holds: in closed form, and of the test scenes."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.codes.sampling import sample_codes
from bindscope.config.entities import dataset_of, model_of
from bindscope.core.files import write_json
from bindscope.models.known_answer_realised import realised_truth
from bindscope.models.known_answer_truth import truth

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `truth_bits` and its parts in expectation, and, as `realised`, of the test scenes."""
    names = {name: job.wildcards[name] for name in ("dataset", "model", "tokens")}
    dataset, model, tokens = dataset_of(job), model_of(job), job.spec["tokens"]
    objects = sample_codes(dataset, "test", 0, job.spec["n_scenes"])
    realised = realised_truth(model, dataset, objects, "test", tokens)
    expected = truth(model, dataset, "test", tokens)
    write_json(
        job.output.truth,
        {**names, **expected.columns(), "realised": realised.columns(), **job.keys},
    )


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
