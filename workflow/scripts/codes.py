"""Draw the object codes of one split."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import bindscope
from bindscope.codes.sampling import sample_codes
from bindscope.codes.slots import slots_of
from bindscope.codes.space import feature_code
from bindscope.config.entities import dataset_of
from bindscope.core.store.writer import write_arrays

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `objects` (N, K) and `features` (N, n), uint8; `slots` int16 where there are any."""
    dataset = dataset_of(job)
    objects = sample_codes(dataset, job.spec["split"], 0, job.spec["n_scenes"])
    sizes = [group.size for group in dataset.space.groups]
    arrays: dict[str, NDArray[np.integer]] = {
        "objects": objects,
        "features": feature_code(objects, sizes),
    }
    if dataset.slots:
        arrays["slots"] = slots_of(dataset, job.spec["split"], 0, objects)
    write_arrays(job.output.store, job.output.manifest, arrays, spec=job.spec_text, code=job.code)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
