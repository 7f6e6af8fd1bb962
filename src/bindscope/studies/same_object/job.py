"""One job: a probe of pairs, fitted to each layer of a block and measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from bindscope.activations.reader import RowReader
from bindscope.core.errors import StoreError
from bindscope.core.files import canonical_json, write_atomic, write_json
from bindscope.core.splits import SPLITS
from bindscope.core.store.reader import Store, open_store
from bindscope.fitting.rows import Rows
from bindscope.studies.same_object.data import KNOWN, Background, PairData, trimmed
from bindscope.studies.same_object.fit import ProbeResult, fit_rows
from bindscope.studies.same_object.marks import NO_MODEL, weights_name
from bindscope.studies.same_object.probes_config import AnyScorer

SAMPLE_ARRAYS = ("patches", "instances", "classes", *KNOWN)


@dataclass(frozen=True)
class FirstPatches:
    """The first patches of each image, as `fitting.rows.Rows`: behind them there are none."""

    rows: Rows
    width: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Images, patches, and numbers of a token."""
        return self.rows.shape[0], self.width, *self.rows.shape[2:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of what `read` returns."""
        return self.rows.dtype

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return images [start, stop), in `out` where given."""
        found: NDArray[Any] = self.rows.read(start, stop)[:, : self.width]
        if out is None:
            return found
        out[...] = found
        return out


def pair_data(
    sample: Store, tokens: Sequence[Store], layer: str, background: Background
) -> PairData:
    """Put the patches of a split and their tokens in one layer together; tokens are read later.

    Parameters
    ----------
    sample
        Store of the rule `patch_samples`.
    tokens
        Stores of the rule `sampled` or `same_object_known`, in the order of their scenes; none for
        what reads labels and positions alone.
    layer
        Name of the layer.
    background
        As configured.

    Raises
    ------
    StoreError
        If tokens and patches are not of the same images.
    """
    whole = {name: sample.read(name) for name in SAMPLE_ARRAYS if name in sample.names}
    arrays = trimmed(whole)
    rows, columns = sample.attributes["grid"]
    split = sample.attributes["split"]
    reader = RowReader(tokens, ["patches"], layer, split) if tokens else None
    wanted = whole["patches"].shape
    if reader is not None and reader.shape[:2] != wanted:
        raise StoreError(
            str(tokens[0].manifest.path),
            f"holds tokens of {reader.shape[0]} x {reader.shape[1]} patches, and the sample "
            f"{sample.manifest.path} has {wanted[0]} x {wanted[1]}",
            "run snakemake again, which makes both of the same images",
        )
    read = None if reader is None else FirstPatches(reader, arrays["patches"].shape[1])
    return PairData.of(arrays, read, (rows, columns), background)


def fit_layers(
    probe: AnyScorer,
    samples: Sequence[str],
    tokens: Mapping[str, Sequence[str]],
    spec: Mapping[str, Any],
    names: Mapping[str, Any],
) -> Iterator[ProbeResult]:
    """Fit a probe to each layer of a block, as `bindscope.same_object` does.

    Parameters
    ----------
    probe
        Its configuration.
    samples
        Manifests of the patches of train, val and test.
    tokens
        Manifests of their tokens by split; empty for what reads labels and positions alone.
    spec
        The job's `layers`, `seeds`, `control`, `background` and `intervals`.
    names
        Columns that the job knows: dataset, model, probe, keys.
    """
    opened = dict(zip(SPLITS, map(open_store, samples), strict=True))
    stores = {split: [open_store(path) for path in tokens.get(split, ())] for split in SPLITS}
    skipped = len(opened["test"].attributes["skipped"])
    for layer in [str(layer) for layer in spec["layers"]] or [NO_MODEL]:
        data: dict[str, PairData] = {
            split: pair_data(opened[split], stores[split], layer, spec["background"])
            for split in SPLITS
        }
        yield from fit_rows(
            probe, data, {**names, "layer": layer}, skipped,
            seeds=spec["seeds"], control=spec["control"], **spec["intervals"],
        )  # fmt: skip


def write_results(output: Any, results: Iterable[ProbeResult]) -> None:
    """Write rows, strata, weights, histories, and what is told right of each test image.

    Parameters
    ----------
    output
        Paths `rows`, `strata`, `weights`, `history`, `images`.
    results
        What `fit_layers` yields.
    """
    rows, strata, history = [], [], []
    weights: dict[str, NDArray[Any]] = {}
    of_images: dict[str, NDArray[Any]] = {}
    for result in results:
        layer = result.row["layer"]
        rows.append(result.row)
        strata += result.strata
        history += [{"layer": layer, **row} for row in result.history]
        which = weights_name(layer, result.row["seed"], result.row["rank"])
        weights |= {
            f"{which}.{name}": np.ascontiguousarray(value) for name, value in result.weights.items()
        }
        of_images[which] = result.of_images
    write_atomic(output.weights, save(weights))
    write_atomic(output.images, save(of_images))
    write_json(output.history, history)
    write_atomic(output.strata, "".join(canonical_json(row) + "\n" for row in strata))
    write_atomic(output.rows, "".join(canonical_json(row) + "\n" for row in rows))
