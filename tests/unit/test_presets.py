"""Every preset plans, shows the figure it is for, and has a small twin; the small ones in a row."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from bindscope.commands import presets
from bindscope.config.loading import load_file
from bindscope.graph.build import build, leaves
from bindscope.graph.product import Graph

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

    def run(root: Path, arguments: list[str]) -> int:
        name = Path(arguments[1]).stem
        (root / "calls").open("a").write(f"{name} {' '.join(arguments[2:])}\n")
        for path in ("results/figures/complexity.png", "results/figures/other.png"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(name)
        return int(name == "layers_small")

    monkeypatch.setattr(presets.launch, "run", run)
    return tmp_path


def test_a_failing_preset_does_not_hold_up_the_others(
    clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert presets.run_presets(clone, ["layers_small", "complexity_small"], ["-n"]) == 1
    assert (clone / "calls").read_text().split() == ["layers_small", "-n", "complexity_small", "-n"]
    said = capsys.readouterr().out
    assert "FAILED (exit code 1)" in said
    kept = clone / "results/presets/complexity_small"
    # a figure that another preset left is not this one's
    assert [path.name for path in kept.iterdir()] == ["complexity.png"]
    assert (kept / "complexity.png").read_text() == "complexity_small"
    assert not (clone / "results/presets/layers_small").exists()


def test_all_small_presets_run_by_default_and_names_are_checked(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(clone)
    monkeypatch.setattr(presets, "keep", lambda root, name: name)
    assert presets.main([]) == 1  # layers_small, above
    called = (clone / "calls").read_text().split()
    assert called == [name for name in NAMES if name.endswith("_small")]
    assert presets.main(["calibration_small", "--", "--cores", "1"]) == 0
    assert (clone / "calls").read_text().endswith("calibration_small --cores 1\n")
    assert presets.main(["calibrate"]) == 1
    assert "calibration_small" in capsys.readouterr().err
