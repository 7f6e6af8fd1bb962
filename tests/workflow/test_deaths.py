"""Jobs and runs that die: the next run ends where an undisturbed one does."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT, Clone
from quick import SHORT_TOY
from releases import write_clevr, write_genome_archives, zipped
from test_code_keys import more_sections

from bindscope.config.root import Config
from bindscope.core import keys
from bindscope.core.graph import Product, roots
from bindscope.scenes.solids.values import VALUES
from bindscope.studies.build import build

pytestmark = [pytest.mark.workflow, pytest.mark.slow, pytest.mark.timeout(1200)]
DYING = Path(__file__).parent / "dying"
RECORDS_LOST = 4  # attempts with Snakemake's records of the earlier ones
REVISION = "0" * 40
COUNTED = {"kind": "counted", "max_objects": 20}


@dataclass(frozen=True)
class Sources:
    """What is read: a folder, and the address at which it is served."""

    folder: Path
    address: str


def change(clone: Clone, sources: Sources) -> None:
    """Change the configuration so that every script has a job to do, with few jobs of each.

    The space alone decides priors. The scenes become solids, which have statistics;
    three datasets are read: images with a table, CLEVR's archive, a release that is drawn.
    """
    clone.edit(
        {
            "datasets.0.space.max_objects": 4,
            "datasets.0.n_scenes": {"train": 16, "val": 16, "test": 16},
            "datasets.0.shard_size": {"train": 16, "val": 16, "test": 16},
            "datasets.0.render": {"kind": "solids", "size_px": 32, "backend": {"kind": "raycast"}},
            **{f"datasets.{i + 1}": dataset for i, dataset in enumerate(read(sources))},
            "studies.binding_information.fits.0": {
                "name": "layers",
                "datasets": ["own"],
                "models": ["vit"],
                "layers": "last",
                "probes": ["linear"],
            },
            "studies.binding_information.learning_curves.0.datasets": ["own"],
            "datasets.4": PAIRS,
            "models.2": {"name": "kept", "source": "zoo:matching-features-0", "input_px": 64},
            "studies.same_object": pairs_of_patches(),
            "models.3": READER,
            "studies.concepts": {
                **more_sections()["concepts"],
                "planted": [{"name": "lookup", "kind": "lookup", "dim": 8}],
                "analyses": [
                    {
                        "name": "all",
                        "datasets": ["pairs"],
                        "planted": ["lookup"],
                        "strengths": [1],
                        "models": ["reader"],
                        "vectors": ["joint"],
                        "estimators": ["avg"],
                        "complexity": {
                            "approximators": [{"name": "sums", "kind": "additive"}],
                            "coverages": [0.5],
                        },
                    }
                ],
            },
            "studies.binding_id": {
                **more_sections()["binding_id"],
                "toys": [{"name": "free", "training": SHORT_TOY}],
            },
            "report.figures": ["parts"],
        }
    )


# Objects large enough for the patches of the model: those of the solids are not.
PAIRS = {
    "name": "pairs",
    "split": {"rule": "random"},
    "space": {
        "kind": "uniform",
        "max_objects": 2,
        "min_objects": 2,
        "groups": [{"name": "color", "size": 3}, {"name": "shape", "size": 2}],
    },
    "n_scenes": {"train": 64, "val": 64, "test": 64},
    "shard_size": {"train": 64, "val": 64, "test": 64},
    "render": {
        "kind": "shapes",
        "size_px": 32,
        "object_px": 14,
        "margin_px": 1,
        "area": "released",
    },
    "slots": 2,
    "captions": {},
}
READER = {
    "name": "reader",
    "source": "controlled:captions",
    "architecture": {"n_layers": 1, "width": 16, "n_heads": 2, "patch_px": 8},
    "training": {"dataset": "pairs", "steps": 4, "batch_size": 16},
}


def pairs_of_patches() -> dict[str, Any]:
    """Return the section of the study of pairs, about these scenes, and a model of the zoo."""
    section: dict[str, Any] = more_sections()["same_object"]
    section["fits"].append(
        {"name": "kept", "models": ["kept"], "layers": [0, 1], "probes": ["quadratic"]}
    )
    section["effects"] |= {"models": ["vit", "kept"]}
    parts = (section[part] for part in ("maps", "geometry", "effects"))
    for entry in (*section["fits"], *parts):
        entry["datasets"] = ["pairs"]
    return section


def read(sources: Sources) -> list[dict[str, object]]:
    """Datasets whose scenes are read from files in a folder."""
    clevr = [{"name": name, "size": len(values)} for name, values in VALUES.items()]
    ours = [{"name": "color", "size": 3}, {"name": "shape", "size": 2}]
    groups = [{"name": "category", "size": 3}, {"name": "color", "size": 3}]
    archive = sources.folder / "CLEVR.zip"
    genome = [
        {
            "url": f"{sources.address}/genome/{path.name}",
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted((sources.folder / "genome").glob("*.zip"))
    ]
    in_folder = {
        "kind": "table",
        "path": str(sources.folder / "own/objects.csv"),
        "values": {"color": ["red", "green", "blue"], "shape": ["circle", "square"]},
    }
    in_archive = {
        "kind": "clevr",
        "url": f"{sources.address}/CLEVR.zip",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }
    in_archives = {
        "kind": "visual_genome",
        "feature": "color",
        "n_categories": 3,
        "n_values": 2,
        "min_category_images": 1,
        "min_value_images": 1,
        "downloads": genome,
    }
    few = {"train": 3, "val": 1, "test": 1}
    return [
        photos("own", in_folder, ours, {"train": 64, "val": 32, "test": 32}, 32),
        photos("clevr", in_archive, clevr, few, 16),
        photos("genome", in_archives, groups, few, 16),
    ]


def photos(
    name: str,
    source: dict[str, Any],
    groups: list[dict[str, Any]],
    sizes: dict[str, int],
    side_px: int,
) -> dict[str, object]:
    """Return a dataset of images with counted objects, split by their order."""
    return {
        "name": name,
        "split": {"rule": "index", "sizes": sizes},
        "space": {**COUNTED, "groups": groups},
        "source": source,
        "n_scenes": sizes,
        "shard_size": sizes,
        "render": {"kind": "photos", "size_px": side_px},
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sources]:
    """What is read: images and labels, releases in small, a checkpoint that was downloaded once."""
    folder = tmp_path_factory.mktemp("sources")
    subprocess.run(
        [sys.executable, ROOT / "docs/examples/own_images.py", folder / "own"], check=True
    )
    write_clevr(folder / "clevr")
    zipped(folder / "clevr", folder / "CLEVR.zip")
    (folder / "genome").mkdir()
    write_genome_archives(folder / "genome")
    snapshot = folder / f"hub/models--some--model/snapshots/{REVISION}"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_bytes(b"weights")
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Sources(folder, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file per undisturbed job: which definitions of the library it called."""
    return tmp_path_factory.mktemp("calls")


@pytest.fixture(scope="module")
def undisturbed(
    sources: Sources, calls: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Products of the changed configuration, of jobs that Snakemake did not run."""
    clone = Clone.make(tmp_path_factory.mktemp("undisturbed") / "clone")
    change(clone, sources)
    clone.run_jobs(calls)
    (calls / "config.yaml").write_text((clone.path / clone.configfile).read_text())
    return clone.results()


@pytest.mark.whole
def test_jobs_call_nothing_that_their_code_key_lacks(
    undisturbed: dict[str, str], calls: Path
) -> None:
    """The key is computed from names in the source; the calls were seen while the jobs ran."""
    config = Config.model_validate(yaml.safe_load((calls / "config.yaml").read_text()))
    missing = {}
    chained: dict[str, set[str]] = {}  # a product's path -> definitions in its two code hashes
    for product in build(config).products.values():  # inputs come before what is made of them
        code = keys.closure(roots(product.content)).definitions
        names = {f"{module}:{name}" for module, defined in code.items() for name in defined}
        inputs = (source.path() for source in product.sources)
        chained[product.path()] = names.union(*(chained[path] for path in inputs))
        called = (calls / product.path().replace("/", ":")).read_text().split()
        assert called
        for name in set(called) - chained[product.path()]:
            # Called by Python's import of torchvision; nothing computes with what is declared.
            if not name.startswith("bindscope.core.workarounds:"):
                missing[name] = product.rule
    assert missing == {}


def test_killed_snakemake_leaves_no_orphan_and_the_next_run_completes(
    finished: Clone, tmp_path: Path
) -> None:
    """It is killed while scenes are written, on the way to activations of them."""
    clone = Clone.make(tmp_path / "clone")
    target = clone.product("pooled", model="vit", part="first")
    run = subprocess.Popen(
        clone.command("--", target.path()),
        cwd=clone.path,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list(clone.path.glob("results/scenes/*/*.json")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    deadline = time.monotonic() + 10
    while clone.jobs():
        assert time.monotonic() < deadline, "a job outlived its Snakemake"
        time.sleep(0.1)

    clone.snakemake("--unlock")
    clone.snakemake("--", target.path())
    assert clone.would_run("--", target.path()).total() == 0
    completed = clone.results()
    assert {path.removeprefix("results/") for path in made_from(target)} <= set(completed)
    assert completed.items() <= finished.results().items()


def made_from(product: Product) -> set[str]:
    """Return the paths of a product and of all that it is made from."""
    return {product.path()}.union(*map(made_from, product.sources))


@pytest.mark.whole
def test_every_script_dies_once_after_a_change(
    finished: Clone, sources: Sources, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    """A job of each exits or is killed as it writes; midway Snakemake's records are lost.

    What comes out is what jobs make that nobody disturbs: byte for byte.
    """
    clone = finished.copy(tmp_path / "clone")
    change(clone, sources)
    records = tmp_path / "records"
    records.mkdir()
    environment = {
        "PYTHONPATH": str(DYING),
        "DIE_RECORDS": str(records),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": str(sources.folder / "hub"),
    }
    scripts = {path.stem for path in (clone.path / "workflow/scripts").glob("*.py")}

    def attempts(clone: Clone, *targets: str, lose_at: int | None = None) -> int:
        """Run until nothing dies; return how often something did."""
        for attempt in range(2 * len(scripts)):
            # Jobs that do not need one another die in the same attempt: fewer of them.
            done = clone.snakemake("--keep-going", *targets, environment=environment, check=False)
            if done.returncode == 0:
                return attempt
            if attempt == lose_at:
                shutil.rmtree(clone.path / ".snakemake")
        raise AssertionError(done.stdout + done.stderr)

    # The weights alone: no job reads this checkpoint.
    hub = clone.with_configfile("config/hub.yaml")
    hub.edit(
        {
            "models.4": {"name": "hub", "source": f"hf:some/model@{REVISION}", "n_layers": 2},
            "studies.binding_information.fits.0.models": ["hub"],
        }
    )
    weights = hub.product("weights").path()
    assert attempts(hub, "--", weights) == 1
    manifest = yaml.safe_load((clone.path / weights).read_text())
    assert [file["path"] for file in manifest["files"]] == ["config.json", "model.safetensors"]

    assert attempts(clone, lose_at=RECORDS_LOST) > RECORDS_LOST
    assert {path.name for path in records.iterdir()} == scripts
    results = clone.results()
    assert [path for path in undisturbed if results.get(path) != undisturbed[path]] == []
    assert not list(clone.path.glob("results/**/*.tmp-*"))
    assert clone.would_run().total() == 0
