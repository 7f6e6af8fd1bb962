"""Every preset plans, shows the figure it is for, and has a small twin; the small ones in a row."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from PIL import Image
from sample_tables import make_row, make_table

from bindscope.commands import presets
from bindscope.commands.quick import PROBE_STEPS, SCENES, quick, write_quick
from bindscope.config.loading import load_file
from bindscope.core.graph import Graph
from bindscope.studies.binding_information.rules import ESTIMATES
from bindscope.studies.binding_information.schemas import BINDING_SCHEMA
from bindscope.studies.build import build, leaves
from bindscope.tables.write import write_table

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / presets.FOLDER
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
}
LONGEST_PATH = 200


@cache
def plan(name: str) -> Graph:
    """List a preset's products, in this process."""
    return build(load_file(FOLDER / f"{name}.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_plans_and_shows_what_it_is_for(name: str) -> None:
    graph = plan(name)
    assert {p.path() for p in graph.of("fit", "report")} <= set(leaves(graph))
    assert max(len(p.path()) for p in graph.products.values()) < LONGEST_PATH
    figures = {p.wildcards["figure"] for p in graph.of("figure")}
    assert set(FIGURE_OF.get(name.removesuffix("_small"), ())) <= figures


@pytest.mark.parametrize("name", FIGURE_OF)
def test_a_large_preset_has_a_small_twin_that_needs_neither_gpu_nor_download(name: str) -> None:
    assert {name, f"{name}_small"} <= set(NAMES)
    small, large = plan(f"{name}_small"), plan(name)
    assert not small.of("weights")
    assert '"device":"cuda"' not in "".join(p.spec for p in small.products.values())
    assert len(small.products) < len(large.products)


def test_small_presets_of_one_model_share_its_training() -> None:
    trained = [{p.path() for p in plan(f"{n}_small").of("training")} for n in
               ("main_table", "structure")]  # fmt: skip
    assert trained[0] == trained[1]
    resolution = plan("resolution_small")
    assert len(resolution.of("training")) == 3
    assert len({p.wildcards["model"] for p in resolution.of("pooled")}) == 7


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone in which Snakemake only notes that it was called; one preset fails."""
    (tmp_path / "config").mkdir()
    (tmp_path / presets.FOLDER).symlink_to(FOLDER)

    def run(root: Path, arguments: list[str], module: str) -> int:
        assert module == presets.launch.FORKED
        assert load_file(root / arguments[1]).fits
        name = Path(arguments[1]).stem
        (root / "calls").open("a").write(f"{name} {' '.join(arguments[2:])}\n")
        for path in ("results/figures/complexity.png", "results/figures/other.png"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(name)
        return int(name == "layers_small")

    monkeypatch.setattr(presets.launch, "run", run)
    monkeypatch.setattr(presets, "problems", lambda root, configfile: [])
    return tmp_path


def test_a_failing_preset_does_not_hold_up_the_others(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = clone / ".snakemake/log/2026.snakemake.log"
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(f"line {i} of its log" for i in range(100)))
    assert presets.run_presets(clone, ["layers_small", "complexity_small"], ["-n"]) == 1
    assert (clone / "calls").read_text().split() == ["layers_small", "-n", "complexity_small", "-n"]
    said = capsys.readouterr().out
    end, _, listed = said.rpartition("Presets:")
    assert "==> the end of layers_small, which failed\nline 60 of its log\n" in end
    assert "FAILED (exit code 1)" in listed
    kept = clone / "results/presets/complexity_small"
    # a figure that another preset left is not this one's
    assert [path.name for path in kept.iterdir()] == ["complexity.png"]
    assert (kept / "complexity.png").read_text() == "complexity_small"
    assert not (clone / "results/presets/layers_small").exists()
    assert (clone / "results/figures/complexity.png").exists()


def test_quick_presets_leave_nothing_where_results_are_looked_for(clone: Path) -> None:
    assert presets.run_presets(clone, ["complexity_small"], quick=True) == 0
    kept = clone / "results/presets/quick/complexity_small"
    assert (kept / "complexity.png").read_text() == "complexity_small"
    assert not (clone / "results/figures/complexity.png").exists()
    assert (clone / "results/presets/quick/complexity_small.yaml").exists()


def test_all_small_presets_run_by_default_and_names_are_checked(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(clone)
    monkeypatch.setattr(presets, "keep", lambda root, configfile, kept, put: None)
    assert presets.main([]) == 1  # layers_small, above
    called = (clone / "calls").read_text().split()
    assert called == [name for name in NAMES if name.endswith("_small")]
    assert presets.main(["calibration_small", "--", "--cores", "1"]) == 0
    assert (clone / "calls").read_text().endswith("calibration_small --cores 1\n")
    assert presets.main(["calibrate"]) == 1
    assert "calibration_small" in capsys.readouterr().err


def test_a_preset_is_checked_after_its_run(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(presets, "problems", lambda root, configfile: [f"wrong in {configfile}"])
    assert presets.run_presets(clone, ["complexity_small"]) == 1
    assert "FAILED: wrong in config/presets/complexity_small.yaml" in capsys.readouterr().out
    assert not (clone / "results/presets").exists()
    assert presets.run_presets(clone, ["complexity_small"], ["--dry-run"]) == 0  # nothing to check


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_small")])
def test_a_quick_preset_has_all_that_the_preset_has_but_its_size(name: str, tmp_path: Path) -> None:
    write_quick(FOLDER / f"{name}.yaml", tmp_path / "quick.yaml")
    config, full = load_file(tmp_path / "quick.yaml"), load_file(FOLDER / f"{name}.yaml")
    made, wanted = build(config), plan(name)
    for part in ("models", "probes", "fits"):
        assert [given.name for given in getattr(config, part)] == [
            given.name for given in getattr(full, part)
        ]
    assert {p.rule for p in made.products.values()} == {p.rule for p in wanted.products.values()}
    shown = ("figure", "fit", "null", "attention")
    parts = ("figure", "model", "layer", "tokens", "probe", "seeds")
    seen, expected = (
        {tuple(p.wildcards.get(part) for part in parts) for p in graph.of(*shown)}
        for graph in (made, wanted)
    )
    assert seen == expected
    for dataset in config.datasets:
        assert dataset.n_scenes == dataset.shard_size
        assert dataset.n_scenes.train <= SCENES["train"]
    assert max(p.steps for p in config.probes if p.family != "linear") <= PROBE_STEPS


def test_draws_that_differ_in_the_seed_alone_are_one_in_a_quick_preset() -> None:
    def datasets(name: str) -> list[str]:
        return [given["name"] for given in quick(load_file(FOLDER / f"{name}.yaml"))["datasets"]]

    assert datasets("calibration_small") == ["grid-00"]
    # a seed of its own, but cameras of its own too
    assert datasets("occlusion_small")[-1] == "all-heights"


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a figure and a table, both sound, which are all that its preset shows."""
    figure, table = Path("results/figures/tokens"), Path("results/tables/binding_information")
    for path in (figure, table):
        (tmp_path / path).parent.mkdir(parents=True)
    image = Image.new("L", (4, 4))
    image.putpixel((1, 1), 255)
    image.save(tmp_path / f"{figure}.png")
    write_table(make_table([make_row(), make_row(seed=1)]), tmp_path / table, BINDING_SCHEMA)
    graph = Graph()
    graph.add("figure", {"figure": "tokens"}, {"figure": "tokens"})
    graph.add("table_binding_information", {}, {})
    monkeypatch.setattr(presets, "load_graph", lambda configfile: graph)
    monkeypatch.setattr(presets, "explain", lambda graph, configfile: presets.NOTHING)
    return tmp_path


def test_a_sound_preset_has_no_problems(shown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert presets.problems(shown, "x.yaml") == []
    monkeypatch.setattr(presets, "explain", lambda graph, configfile: "    3  fit  code changed")
    (problem,) = presets.problems(shown, "x.yaml")
    assert problem == "a second run would make again:\n    3  fit  code changed"


def test_what_is_missing_empty_or_failed_is_named(shown: Path) -> None:
    figure, table = shown / "results/figures/tokens.png", shown / "results/tables"
    Image.new("L", (4, 4)).save(figure)
    assert presets.problems(shown, "x") == ["results/figures/tokens.png: nothing is drawn"]
    figure.unlink()
    lost = dict.fromkeys(ESTIMATES)
    failed = make_row(seed=1, status="failed", reason="it diverged") | lost
    rows = [make_row(), {name: v for name, v in failed.items() if v is not None}]
    write_table(make_table(rows), table / "binding_information", BINDING_SCHEMA)
    missing, failures = presets.problems(shown, "x")
    assert "results/figures/tokens.png" in missing
    assert failures.endswith("binding_information.parquet: 1 fits failed (it diverged)")
    (table / "binding_information.parquet").write_bytes(b"PAR1")
    assert "cannot be read as Parquet" in presets.problems(shown, "x")[1]
