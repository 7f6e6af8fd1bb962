"""Known answers of dual encoders, by the script and the graph that the workflow uses.

A product encoder names new objects once it saw enough of them, and not before; a set encoder of
MLPs learns its training pairs by heart. Both at equal data, in seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from drawing import reason
from jobs_by_hand import ROOT, job_by_hand, script

from bindscope.config.root import Config
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.studies.build import build
from bindscope.studies.concepts.figures import concept_coverage
from bindscope.studies.concepts.findings import chapter
from bindscope.studies.concepts.tables import CONCEPTS
from bindscope.studies.concepts.views import recognized
from bindscope.tables.write import write_table

pytestmark = pytest.mark.slow
AT_THE_FLOOR = 0.03  # above it, at most


def default_graph() -> Graph:
    """The default configuration's products, of one seed."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    for encoder in config["studies"]["concepts"]["dual_encoders"]:
        encoder["seeds"] = [0]
    return build(Config.model_validate(config))


def input_of(product: Product, folder: Path) -> ProductFiles:
    names = {**product.wildcards, "spec_key": product.key, "code_key": product.code}
    return ProductFiles(names, {"": str(folder / product.path())})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The default run's table, made of its jobs whose queries are training objects."""
    folder = tmp_path_factory.mktemp("dual")
    jobs = default_graph().select("dual_encoder", query_pool="train_only")
    for product in jobs:
        script("dual_encoder").main(job_by_hand(product, folder))
        assert not list(folder.rglob("*.checkpoint"))
    return CONCEPTS.build(Inputs({"rows": [input_of(job, folder) for job in jobs]}))


def accuracies(table: pd.DataFrame, encoder: str, **kind: Any) -> pd.DataFrame:
    """Return the least and the largest accuracy over seeds by coverage, and the largest floor."""
    rows = recognized(table, analysis=encoder, embedding=f"{encoder}-train_only", **kind)
    return rows.groupby("coverage").agg(
        least=("accuracy", "min"), most=("accuracy", "max"), floor=("floor", "max")
    )


def test_products_name_new_objects_once_they_saw_enough_of_them(table: pd.DataFrame) -> None:
    by_coverage = accuracies(table, "product")
    assert by_coverage.loc[0.8, "least"] >= 0.9
    assert by_coverage.loc[0.15, "most"] <= by_coverage.loc[0.15, "floor"] + AT_THE_FLOOR
    assert by_coverage["least"].is_monotonic_increasing
    without = accuracies(table, "product", stratum="none")
    assert without.loc[0.8, "least"] >= 0.9
    assert without.loc[0.15, "most"] <= AT_THE_FLOOR
    assert (accuracies(table, "product", split="train")["least"] >= 0.98).all()


def test_a_set_of_mlps_knows_its_training_pairs_by_heart(table: pd.DataFrame) -> None:
    trained = accuracies(table, "mlp", split="train", variant="trained")
    assert trained["least"].min() >= 0.98
    held_out = accuracies(table, "mlp")
    assert (held_out["most"] <= held_out["floor"] + AT_THE_FLOOR).all()


def test_sums_of_mlps_tell_concepts_of_new_objects_and_products_objects_first(
    table: pd.DataFrame,
) -> None:
    """A value is no direction of a product of two vectors: opposite weaknesses."""
    assert accuracies(table, "mlp", measure="concept").loc[0.5, "least"] >= 0.98
    concepts = accuracies(table, "product", measure="concept")
    objects = accuracies(table, "product")
    assert concepts.loc[0.3, "most"] < objects.loc[0.3, "least"] - 0.1
    assert concepts.loc[0.8, "least"] >= 0.95


def test_nearly_all_fits_have_ended(table: pd.DataFrame) -> None:
    runs = recognized(table)["flags"]
    assert set(runs) <= {"", "not_converged"}
    assert (runs != "").mean() <= 0.2


def test_the_figure_and_the_chapter_say_so(table: pd.DataFrame, tmp_path: Path) -> None:
    write_table(table, tmp_path / "concepts", CONCEPTS.schema)
    files = [ProductFiles({}, {"": str(tmp_path / "concepts.parquet")})]
    resources = {"concepts": "resources/published/concepts.csv"}
    data = concept_coverage.read(Inputs({"table": files}, resources=resources))
    assert reason(concept_coverage, table=table.iloc[:0])
    figure = concept_coverage.draw(**data)
    lines = [line.get_xydata() for line in figure.axes[0].lines]
    assert any(line[-1, 1] >= 0.9 for line in lines)
    coverages = chapter({"concepts": table}, Inputs())
    lead = coverages.lead[0]
    learned, planted = lead.index("(mlp, coverage 0.5"), lead.index("product, coverage 0.8")
    assert learned < planted
    assert "planted" in lead[learned:planted]
    assert "100.0\u00a0%" in lead[learned:planted]
    assert coverages.findings == chapter({}, Inputs()).findings == ()
