"""Run large presets as they stand, on stand-ins for weights and releases: `make rehearse`.

python tests/rehearsals/rehearse.py                     every preset, and the table
python tests/rehearsals/rehearse.py same_object         one of them
python tests/rehearsals/rehearse.py --device cuda       where there is a GPU
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(path) for path in (HERE, HERE.parent / "helpers")]

import data  # noqa: E402
import yaml  # noqa: E402
from cuts import cut, sources  # noqa: E402
from harness import ROOT, Clone  # noqa: E402
from hub import Hub  # noqa: E402
from languages import LANGUAGES  # noqa: E402
from towers import HF, NARROW, narrow_timm, write_timm  # noqa: E402

from bindscope.config.loading import load_file  # noqa: E402
from bindscope.core.contents import file_sha256  # noqa: E402
from bindscope.models.weights import parse_source  # noqa: E402

PRESETS = ROOT / "config/presets"
TABLE = ROOT / "resources/reference/rehearsals.csv"
# Those without a small twin of their name.
FURTHER = (
    "binding_id",
    "binding_id_published",
    "binding_information_published",
    "calibration",
    "clevr",
    "clevr_rendered",
    "concepts_nightly",
    "concepts_published",
    "natural",
    "objectives",
    "other_sources",
)


@dataclass
class Rehearsal:
    """A row of the table; forecasts are of all jobs, whether or not they end."""

    preset: str
    jobs: int = 0
    failed: int = 0
    forecast_memory_gb: float = 0.0
    peak_memory_gb: float = 0.0
    forecast_disk_gb: float = 0.0
    disk_gb: float = 0.0
    seconds: float = 0.0
    problems: list[dict[str, Any]] = field(default_factory=list)


def presets() -> list[str]:
    """Return the names of all that are rehearsed."""
    twins = {path.stem.removesuffix("_small") for path in PRESETS.glob("*_small.yaml")}
    return sorted(name for name in {*twins, *FURTHER} if file_of(name).is_file())


def file_of(name: str) -> Path:
    """Return the file of a preset, or of what is rehearsed beside the presets."""
    files = [folder / f"{name}.yaml" for folder in (PRESETS, HERE)]
    return next((path for path in files if path.is_file()), files[0])


class Stage:
    """Where rehearsals run: a cache of the hub, releases, and a server that gives them away.

    Parameters
    ----------
    folder
        Empty, or that of an earlier stage, whose stand-ins are used again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub = Hub(folder / "hub")
        self.releases = folder / "releases"
        self.releases.mkdir(parents=True, exist_ok=True)
        handler = partial(_Quiet, directory=str(self.releases))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def write_models(self, named: Sequence[str]) -> None:
        """Write stand-ins for weights."""
        parsed = [parse_source(source) for source in dict.fromkeys(named)]
        narrow_timm([source.name for source in parsed if source.library == "timm"], NARROW)
        for source in parsed:
            if source.library == "timm":
                write_timm(self.hub, source.name, source.revision)
                continue
            folder = self.hub.snapshot(source.name, source.revision)
            if any(folder.iterdir()):
                continue
            if source.name in LANGUAGES:
                LANGUAGES[source.name](folder)
            elif source.name in HF:
                HF[source.name](folder, NARROW)
            else:
                raise SystemExit(f"{source.name} has no stand-in: add it to tests/rehearsals")

    def source(self, section: dict[str, Any]) -> dict[str, Any]:
        """Return a `source` section that reads, or downloads, a stand-in for its release."""
        kind = section["kind"]
        folder = self.releases / kind
        write = {
            "clevr": data.clevr,
            "visual_genome": data.genome,
            "ade20k": data.ade20k,
            "coco_panoptic": data.coco,
            "pug_spare": data.pug_spare,
        }[kind]
        if not folder.exists():
            folder.mkdir()
            write(folder)
        if kind == "clevr":
            return {**section, **self._file(folder / "CLEVR_v1.0.zip")}
        if kind == "visual_genome":
            archives = [self._file(path) for path in sorted(folder.glob("*.zip"))]
            few = {"min_category_images": 2, "min_value_images": 2}
            return {**section, **few, "downloads": archives}
        if kind == "ade20k":
            return {**section, "path": str(folder / "ADE20K_2021_17_01")}
        return {**section, "path": str(folder)}

    def _file(self, path: Path) -> dict[str, str]:
        port = self.server.server_address[1]
        url = f"http://127.0.0.1:{port}/{path.relative_to(self.releases)}"
        return {"url": url, "sha256": file_sha256(path)}

    def config(self, preset: Path, device: str) -> dict[str, Any]:
        """Return what is run of a preset, for which stand-ins are written."""
        content = cut(load_file(preset), device)
        for dataset in content["datasets"]:
            if dataset.get("source"):
                dataset["source"] = self.source(dataset["source"])
        self.write_models(list(sources(content)))
        return content


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def rehearse(stage: Stage, preset: Path, device: str, alone: bool) -> Rehearsal:
    """Plan and run a preset in a clone; what fails is told, and does not end it.

    `alone`: measure the memory of jobs in interpreters of their own, too.
    """
    done = Rehearsal(preset.stem)
    clone = Clone.make(stage.folder / "clones" / preset.stem)
    content = stage.config(preset, device)
    clone.configfile = "config/rehearsal.yaml"
    (clone.path / clone.configfile).write_text(yaml.safe_dump(content, sort_keys=False))
    environment = {
        **os.environ,
        "HF_HUB_CACHE": str(stage.hub.folder),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "REHEARSAL_ALONE": "1" if alone else "",
        "REHEARSAL_SOURCES": json.dumps(list(sources(content))),
        "REHEARSAL_DEVICE": device,
        "PYTHONPATH": os.pathsep.join(
            [
                str(clone.path / "src"),
                str(HERE),
                sys.path[1],
                os.environ.get("PYTHONPATH", ""),
            ]
        ),
    }
    planned = clone.snakemake("--dry-run", "--quiet", "rules", environment=environment, check=False)
    if planned.returncode:
        done.problems.append(
            {
                "rule": "dry run",
                "status": "refused",
                "path": preset.name,
                "error": planned.stderr[-2000:],
            }
        )
        done.failed = done.jobs = 1
        return done
    report = clone.path / "report.json"
    subprocess.run(
        [sys.executable, str(HERE / "jobs.py"), clone.configfile, str(report)],
        cwd=clone.path,
        env=environment,
        check=True,
    )
    count(done, clone.path)
    return done


def count(done: Rehearsal, clone: Path) -> None:
    """Count what `jobs.py` reported of a clone."""
    jobs = json.loads((clone / "report.json").read_text())
    done.problems = [job for job in jobs if job["status"] != "done"]
    done.jobs, done.failed = len(jobs), len(done.problems)
    alone = [job["alone_gb"] for job in jobs if "alone_gb" in job]
    done.peak_memory_gb = max(alone or [job["memory_gb"] for job in jobs])
    done.forecast_memory_gb = max(job["forecast_gb"] for job in jobs)
    done.forecast_disk_gb = sum(job["forecast_disk_gb"] for job in jobs)
    files = [path for path in (clone / "results").rglob("*") if path.is_file()]
    done.disk_gb = sum(path.stat().st_size for path in files) / 1e9
    done.seconds = sum(job["seconds"] for job in jobs)


def write_table(rows: Sequence[Rehearsal]) -> None:
    """Replace the rows of these presets in the table."""
    columns = [name for name in Rehearsal.__dataclass_fields__ if name != "problems"]
    known = {}
    if TABLE.is_file():
        with TABLE.open(newline="") as file:
            known = {row["preset"]: row for row in csv.DictReader(file)}
    for row in rows:
        values = {name: value for name, value in asdict(row).items() if name in columns}
        known[row.preset] = {
            name: f"{value:.3g}" if isinstance(value, float) else value
            for name, value in values.items()
        }
        known[row.preset]["seconds"] = f"{row.seconds:.0f}"
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(known[name] for name in sorted(known))


def main() -> None:
    """Rehearse what the command line names; write the table, and what failed."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("presets", nargs="*", metavar="PRESET", help="default: all of them")
    arguments.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    arguments.add_argument("--keep", type=Path, help="folder to work in, which stays")
    arguments.add_argument("--table", action="store_true", help=f"write {TABLE.relative_to(ROOT)}")
    options = arguments.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="rehearsals-"))
    stage = Stage(folder)
    rows = []
    for name in options.presets or presets():
        shutil.rmtree(folder / "clones" / name, ignore_errors=True)
        row = rehearse(stage, file_of(name), options.device, options.table)
        rows.append(row)
        print(
            f"{name}: {row.jobs} jobs, {row.failed} not done, {row.peak_memory_gb:.2f} GB, "
            f"{row.disk_gb:.3f} GB on disk, {row.seconds:.0f} s",
            flush=True,
        )
        (folder / f"{name}.json").write_text(json.dumps(row.problems, indent=1))
        if options.table:
            write_table([row])
    if not options.keep:
        shutil.rmtree(folder)
    raise SystemExit(1 if any(row.failed for row in rows) else 0)


if __name__ == "__main__":
    main()
