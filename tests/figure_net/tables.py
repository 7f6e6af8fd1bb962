"""Draw figures from a folder of tables, as they are and doubled: `tables.py TABLES OUT.gz [PNGS]`.

Doubled: the same numbers, less, under the names of other models and data sets, some in groups.
"""

import gzip
import json
import os
import sys
import traceback
from pathlib import Path

import pandas as pd

from bindscope.core.interfaces import Given, Inputs
from bindscope.core.registries import studies
from bindscope.figures import style
from bindscope.tables import write
from figure_net.dump import dump
from figure_net.run import draw

OF = {
    "same_object_geometry": ["same_object_geometry", "same_object_distance",
                             "same_object_cross_layers"],
    "same_object": ["same_object_layers", "same_object_models", "same_object_ranks"],
    "same_object_strata": ["same_object_strata"],
    "same_object_attention": ["same_object_attention"],
    "same_object_ablation": ["same_object_edits"],
    "binding_id": ["binding_id", "binding_id_mean", "binding_id_sweeps", "binding_id_subspaces"],
    "binding_id_positions": ["binding_id_positions"], "binding_id_heads": ["binding_id_heads"],
    "binding_id_mixture": ["binding_id_mixture"],
    "concept_models": ["concept_models"], "concept_geometry": ["concept_geometry"],
    "concept_editing": ["concept_editing"], "binding_generalization": ["concept_coverage"],
    "binding_complexity": ["binding_complexity", "dual_complexity"],
    "learning_curve": ["learning_curve"], "together": ["together"], "pairing_use": ["pairing_use"],
    "binding_information": ["parts", "parts_layers", "tokens", "layers", "calibration",
                            "histogram"],
}  # fmt: skip
ENTRIES = {entry.name: entry for study in studies().values() for entry in study.figures}
OLD = write.read_table


def doubled(table, column):
    """Return a table and the same with other names."""
    other = table.copy()
    for name in ("model", "embedding", "encoder"):
        if name in other and column == "model":
            other[name] = other[name].where(other[name] == "none", "other-" + other[name])
    if column == "dataset" and "dataset" in other:
        other["dataset"] = "other-" + other["dataset"]
    for name in other.select_dtypes("float"):
        other[name] = (
            0.9 * other[name]
            if name.startswith(("value", "acc", "auc", "share"))
            else (other[name])
        )
    return pd.concat([table, other], ignore_index=True)


def main(folder, out, pngs=None):
    """Draw."""
    found = {}
    for table, figures in OF.items():
        path = Path(folder) / f"{table}.parquet"
        if not path.exists():
            continue
        for name in [f for f in figures if f in os.environ.get("ONLY", f).split(",")]:
            for kind in ("plain", "model", "dataset"):

                def reading(at, schema=None, kind=kind):
                    read = OLD(at, schema)
                    return read if kind == "plain" else doubled(read, kind)

                for module in list(sys.modules.values()):
                    if getattr(module, "read_table", None) and module.__name__.startswith(
                        "bindscope"
                    ):
                        module.read_table = reading
                frame = reading(path)
                models = list(dict.fromkeys(frame.get("model", [])))
                some = [m for m in models if "none" not in m]
                content = {
                    "binding": {"models": models, "model_groups": [], "datasets": sorted(
                        set(frame.get("dataset", [])))},
                    "learning": {"models": models},
                    "same": {"models": models, "model_groups": [
                        {"name": "grouped", "models": some[-2:]}] if kind == "model" else []},
                    "concept": {"encoders": sorted(set(frame.get("encoder", [])))},
                }  # fmt: skip
                by = {
                    "parts": "binding",
                    "parts_layers": "binding",
                    "tokens": "binding",
                    "layers": "binding",
                    "calibration": "binding",
                    "histogram": "binding",
                }
                group = by.get(name, name.split("_")[0])
                told = (
                    content.get(group, {})
                    if name
                    not in (
                        "binding_complexity",
                        "binding_id",
                        "binding_id_mean",
                        "concept_geometry",
                        "concept_editing",
                        "binding_id_sweeps",
                        "binding_id_subspaces",
                        "binding_id_positions",
                        "binding_id_heads",
                        "binding_id_mixture",
                    )
                    else {}
                )
                products = {"table": [Given({}, {"": str(path)})]}
                for role, other in (
                    ("scores", "same_object"),
                    ("retrained", "same_object_retrained"),
                    ("statistics", "scene_statistics"),
                    ("priors", "priors"),
                ):
                    if (Path(folder) / f"{other}.parquet").exists():
                        products[role] = [Given({}, {"": f"{folder}/{other}.parquet"})]
                entry = ENTRIES[name]
                root = Path(__file__).parents[2]
                resources = {Path(p).stem: str(root / p) for p in entry.resources}
                try:
                    figure = draw(entry.implementation, Inputs(products, told, resources))
                except Exception:
                    traceback.print_exc(limit=-3)
                    print(name, kind, "FAILED")
                    continue
                found[f"{name}.{kind}"] = style.styled(dump)(figure)
                print(name, kind, len(json.dumps(found[f"{name}.{kind}"])))
                if pngs:
                    Path(pngs).mkdir(parents=True, exist_ok=True)
                    style.save(figure, f"{pngs}/{name}.{kind}.png", f"{pngs}/{name}.svg")
    with gzip.open(out, "wt") as file:
        file.write("\n".join(json.dumps([n, d], sort_keys=True) for n, d in found.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
