"""Every preset plans, shows the figure it is for, and needs what it and its page state."""

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from bindscope.config.loading import load_file
from bindscope.config.pug_spare import PugSpareSource
from bindscope.config.segmented import Ade20kSource
from bindscope.core.graph import Graph, Product
from bindscope.studies.build import build

FOLDER = Path(__file__).resolve().parents[2] / "config/presets"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
# Figure of the paper (or ours) -> the presets that are for it, without `_small`.
FIGURE_OF = {
    "main_table": ("tokens", "attention", "training", "breakdown"),
    "layers": ("layers",),
    "complexity": ("complexity",),
    "resolution": ("resolution",),
    "structure": ("structure",),
    "occlusion": ("occlusion",),
    "natural": ("natural",),
    "calibration": ("calibration",),
    "same_object": ("same_object_layers", "same_object_models", "same_object_strata"),
    "same_object_published": (
        "same_object_layers",
        "same_object_models",
        "same_object_maps",
        "same_object_copies",
        "same_object_geometry",
        "same_object_cross_layers",
        "same_object_attention",
        "same_object_ablation",
    ),
    "concepts": (
        "concept_coverage",
        "concept_geometry",
        "concept_removal",
        "concept_edits",
        "concept_editing",
        "concept_picture",
        "binding_complexity",
        "dual_complexity",
    ),
}
LONGEST_PATH = 200
LABELS = "tests/fixtures/segmented"
TABLE = "tests/fixtures/own_images/objects.csv"
ROWS = re.findall(
    r"^\| `(\w+)` \| ([\d,]+) \| (.*?) ?\| (.*?) ?\| (.*?) ?\|$",
    (FOLDER.parents[1] / "docs/presets.md").read_text(),
    re.MULTILINE,
)
HEADERS = {
    path.stem: re.sub(r"\n# ?", " ", "".join(re.findall(r"^#.*\n", path.read_text(), re.MULTILINE)))
    for path in sorted(FOLDER.glob("*.yaml"))
}


@cache
def plan(name: str) -> Graph:
    """List a preset's products, in this process.

    ADE20K needs registration, PUG:SPARE a user's copy: where a preset reads one, labels are those
    of tests/fixtures.
    """
    config = load_file(FOLDER / f"{name}.yaml")
    paths = {Ade20kSource: LABELS, PugSpareSource: TABLE}
    datasets = [
        dataset.model_copy(
            update={
                "source": dataset.source.model_copy(update={"path": paths[type(dataset.source)]})
            }
        )
        if type(dataset.source) in paths
        else dataset
        for dataset in config.datasets
    ]
    return build(config.model_copy(update={"datasets": tuple(datasets)}))


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_plans_and_shows_what_it_is_for(name: str) -> None:
    graph = plan(name)
    assert {p.path() for p in graph.select("fit", "report")} <= set(graph.leaves())
    assert max(len(p.path()) for p in graph.products.values()) < LONGEST_PATH
    assert all(p.work.memory_mb > 0 for p in graph.products.values())
    figures = {p.wildcards["figure"] for p in graph.select("figure")}
    assert set(FIGURE_OF.get(name.removesuffix("_small"), ())) <= figures


# Photos cannot be drawn here: `make rehearse PRESET=natural` runs on a stand-in of the release.
@pytest.mark.parametrize("name", [name for name in FIGURE_OF if name != "natural"])
def test_a_large_preset_has_a_small_twin_that_needs_neither_gpu_nor_download(name: str) -> None:
    assert {name, f"{name}_small"} <= set(NAMES)
    small, large = plan(f"{name}_small"), plan(name)
    assert not small.select("weights")
    assert '"device":"cuda"' not in "".join(p.spec for p in small.products.values())
    assert len(small.products) < len(large.products)


@pytest.mark.parametrize(
    ("probes", "targets", "has_figure"),
    [
        (["linear-plain", "quadratic", "paper"], None, True),
        (["linear-plain", "quadratic", "paper"], ["chained"], False),
        (["linear-plain", "quadratic"], None, False),
        (["linear", "paper"], None, False),
        (["linear-plain"], None, False),
    ],
)
def test_families_are_compared_where_three_were_fitted_to_the_same_plain_targets(
    tmp_path: Path, probes: list[str], targets: list[str] | None, has_figure: bool
) -> None:
    config = yaml.safe_load((FOLDER.parent / "config.yaml").read_text(encoding="utf-8"))
    section = config["studies"]["binding_information"]
    (block,) = [block for block in section["fits"] if block["name"] == "families"]
    (quadratic,) = [probe for probe in section["probes"] if probe["name"] == "quadratic"]
    section["probes"].append({"name": "paper", "family": "quadratic", "protocol": "paper"})
    block["probes"] = probes
    del quadratic["targets"]
    quadratic.update({"targets": targets} if targets else {})
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    graph = build(load_file(file))
    assert len(graph.select("figure", figure="structure")) == has_figure


# --- numbers of the page and of headers ---------------------------------------------------------


def products(name: str) -> list[Product]:
    return list(plan(name).products.values())


def amount(cell: str) -> float:
    """Return gigabytes, of the first number of a cell; 0 where there is none."""
    match = re.match(r"([\d.]+) GB", cell)
    return float(match[1]) if match else 0.0


def gpu_gb(name: str) -> float:
    return max(product.work.device_mb for product in products(name)) * 2**20 / 1e9


def disk_gb(name: str) -> float:
    works = [product.work for product in products(name)]
    return sum(work.bytes_disk for work in works if not work.elsewhere) / 1e9


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 8


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_rows_of_the_page_are_forecasts(row: tuple[str, ...]) -> None:
    name, jobs, *cells = row
    memory = max(product.work.memory_mb for product in products(name)) * 2**20 / 1e9
    assert int(jobs.replace(",", "")) == len(products(name))
    forecast = [memory, gpu_gb(name), disk_gb(name)]
    assert [amount(cell) for cell in cells] == pytest.approx(forecast, rel=0.1)


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        (name, kind, float(number))
        for name, text in HEADERS.items()
        for number, kind in (
            *((number, "disk") for number in re.findall(r"(\d+) GB of disk", text)),
            *((number, "downloads") for number in re.findall(r"Downloads (\d+) GB", text)),
            *((number, "GPU") for number in re.findall(r"[Nn]eeds a GPU of (\d+) GB", text)),
        )
    ],
)
def test_sizes_of_headers_are_forecasts(name: str, kind: str, number: float) -> None:
    if kind == "GPU":  # one that is sold, and not twice what is needed
        assert gpu_gb(name) <= number < 2 * gpu_gb(name)
    elif kind == "disk":
        assert number == pytest.approx(disk_gb(name), rel=0.1)
    else:
        files = {product.key: product for product in products(name) if product.rule == "download"}
        total = sum(product.work.bytes_disk for product in files.values())
        assert number == pytest.approx(total / 1e9, rel=0.1)
