"""Products as arrays, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bindscope.activations.reader import Activations
from bindscope.cli import DEFAULT, load_graph
from bindscope.core.digests import check_file
from bindscope.core.errors import BindscopeError, StoreError, snakemake_command
from bindscope.core.graph import Graph, Product
from bindscope.core.store.reader import open_store

if TYPE_CHECKING:
    import xarray

DECIDES_NOTHING = True


@dataclass(frozen=True)
class StoredRepresentation:
    """One representation with its labels.

    Attributes
    ----------
    activations
        float32 (N, d), or for `patches` a reader with ``.shape`` (N, T, d) and ``.read(i, j)``.
    objects
        Object codes, uint8 (N, K).
    features
        Feature codes, uint8 (N, n).
    scenes
        Ids of the scenes (N,): names of image files where scenes were read from a source, else
        their numbers in the split.
    layer
        The layer that was opened.
    tables
        Name -> path of the configuration's tables, those that were made.
    """

    activations: Any
    objects: NDArray[np.uint8]
    features: NDArray[np.uint8]
    scenes: NDArray[Any]
    layer: str
    tables: Mapping[str, Path]

    def read_table(self, name: str) -> pd.DataFrame:
        """Read a table of the run, such as ``binding_information``.

        Raises
        ------
        StoreError
            If there is no such table, or its digest differs.
        """
        if name not in self.tables:
            raise StoreError(
                name,
                f"is no table that was made; there are {', '.join(self.tables) or 'none'}",
                "run the configuration, or choose one of them",
            )
        check_file(self.tables[name])
        return pd.read_parquet(self.tables[name])

    def to_xarray(self) -> xarray.Dataset:
        """Return all arrays with named dimensions; patch tokens are read into memory.

        Returns
        -------
        xarray.Dataset
            `activations` (scene, layer, feature), of patches (scene, layer, token, feature);
            `objects` (scene, object_type) and `features` (scene, value). Coordinates: `scene` and
            `layer`.

        Raises
        ------
        BindscopeError
            If xarray is not installed.
        """
        try:
            import xarray
        except ModuleNotFoundError:
            raise BindscopeError(
                "to_xarray", "xarray is not installed", "pip install 'bindscope[xarray]'"
            ) from None
        values = self.activations
        if not isinstance(values, np.ndarray):
            values = values.read(0, values.shape[0])
        tokens = ("token",) * (values.ndim == 3)
        return xarray.Dataset(
            {
                "activations": (("scene", "layer", *tokens, "feature"), values[:, None]),
                "objects": (("scene", "object_type"), self.objects),
                "features": (("scene", "value"), self.features),
            },
            coords={"scene": self.scenes, "layer": [self.layer]},
        )


def open(
    *,
    dataset: str,
    model: str,
    layer: int | str,
    tokens: str = "cls",
    split: str = "test",
    configfile: str = DEFAULT,
) -> StoredRepresentation:
    """Read activations and labels of one (dataset, model, layer, tokens, split).

    Parameters
    ----------
    dataset
        Name of a dataset of the configuration.
    model
        Name of a model, with its seed if it has several (``"captions-0"``).
    layer
        Number of a layer, or ``"final"``: after the last norm.
    tokens
        Token input: ``"cls"``, ``"mean"``, ``"patches"``.
    split
        ``"train"``, ``"val"`` or ``"test"``.
    configfile
        The configuration of the run.

    Returns
    -------
    StoredRepresentation
        Activations (N, d) or, of patches, (N, T, d), with the labels of the scenes.

    Raises
    ------
    StoreError
        If the configuration has no such product, or it has not been made.
    """
    graph = load_graph(configfile)
    arrays = [f"patches-{layer}"] if tokens == "patches" else ["pooled"]
    wildcards = {"dataset": (dataset,), "model": (model,), "array": (*arrays, "encoded")}
    index = _find_product(graph, "index", wildcards, configfile)
    read = any(p.wildcards["dataset"] == dataset for p in graph.select("record_codes"))
    rule = "record_codes" if read else "codes"
    codes = _find_product(graph, rule, {"dataset": (dataset,), "split": (split,)}, configfile)
    labels = open_store(codes.path())
    activations = Activations(index.path())
    values = (
        activations.patches(split)
        if tokens == "patches"
        else activations.pooled(split, tokens, layer)
    )
    objects = labels.read("objects")
    scenes: NDArray[Any] = np.arange(len(objects))
    if read:
        from bindscope.sources.records import read_records

        records = _find_product(graph, "records", {"dataset": (dataset,)}, configfile)
        named = read_records(records.path(), split, 0, len(objects)).scenes
        scenes = np.array([record.image for record in named])
    table_paths = {table.wildcards["table"]: Path(table.path()) for table in graph.select("table")}
    tables = {name: path for name, path in table_paths.items() if path.exists()}
    return StoredRepresentation(
        values, objects, labels.read("features"), scenes, str(layer), tables
    )


def _find_product(
    graph: Graph, rule: str, wildcards: dict[str, tuple[str, ...]], configfile: str
) -> Product:
    for product in graph.select(rule):
        if all(product.wildcards[name] in values for name, values in wildcards.items()):
            if not Path(product.path()).exists():
                raise StoreError(product.path(), "not made yet", snakemake_command(product.path()))
            check_file(product.path())
            return product
    listed = ", ".join(f"{name}={' or '.join(values)}" for name, values in wildcards.items())
    raise StoreError(
        configfile,
        f"no {rule} with {listed} is configured",
        "add it to `fits`, or give another configfile",
    )
