"""Write the object codes of one split of scenes that were read."""

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import bindscope
from bindscope.codes.space import feature_code
from bindscope.core.store.writer import write_arrays
from bindscope.sources.records import objects_of, read_records, slots_in

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write `objects` (N, K) and `features` (N, n), uint8; `slots` int16 where there are any."""
    records = read_records(job.input.records[0], job.spec["split"], 0, job.spec["n_scenes"])
    sizes = job.spec["sizes"]
    objects = objects_of(records.scenes, prod(sizes))
    arrays: dict[str, NDArray[np.integer]] = {
        "objects": objects,
        "features": feature_code(objects, sizes),
    }
    if "slots" in job.spec:
        arrays["slots"] = slots_in(records.scenes, job.spec["slots"])
    write_arrays(job.output.store, job.output.manifest, arrays, spec=job.spec_text, code=job.code)


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
