"""Compute a known-answer encoder's binding information in closed form."""

from typing import TYPE_CHECKING

import bindscope
from bindscope.config.entities import dataset_of, model_of
from bindscope.core.files import write_json
from bindscope.models.known_answer_truth import truth

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `truth_bits` and `truth_conditional_bits`, null where there is no closed form."""
    names = {name: job.wildcards[name] for name in ("dataset", "model", "tokens")}
    bits, conditional = truth(model_of(job), dataset_of(job), "test", job.spec["tokens"])
    write_json(
        job.output.truth,
        {**names, "truth_bits": bits, "truth_conditional_bits": conditional, **job.keys},
    )


if "snakemake" in globals():
    main(bindscope.start(snakemake))
