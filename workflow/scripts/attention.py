"""Look where the queries of an attention probe read."""

from typing import TYPE_CHECKING

from safetensors.numpy import save

import bindscope
from bindscope.core.files import write_atomic, write_json
from bindscope.studies.binding_information.attention_maps import fit_flags, read_maps, summary

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

    from bindscope.core.job import Job


def main(job: "Job") -> None:
    """Write maps of a few scenes, the share of attention on the right object, the fit's flags."""
    arrays = read_maps(
        job.input.fit_weights[0], job.input.index[0], job.input.scenes[0], job.input.codes[0]
    )
    names = {name: job.wildcards[name] for name in ("dataset", "model", "layer", "probe")}
    seed = min(map(int, job.wildcards["seeds"].split("_")))  # the first: see `load_probe`
    flags = fit_flags(job.input.fit[0], seed)
    numbers = summary(arrays, job.spec["information"])
    write_atomic(job.output.maps, save(arrays))
    write_json(job.output.share, {**names, "seed": seed, **numbers, "flags": flags, **job.keys})


if "snakemake" in globals():
    bindscope.run_job(main, snakemake)
