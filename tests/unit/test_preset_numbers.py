"""Numbers that presets and their page state are those of the forecast."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from bindscope.commands import cost
from bindscope.config.loading import load_file
from bindscope.core.graph import Product
from bindscope.core.work import DEVICES, REFERENCE, Machine
from bindscope.studies.build import build

ROOT = Path(__file__).resolve().parents[2]
PRESETS = ROOT / "config/presets"
ROWS = re.findall(
    r"^\| `(\w+)` \| ([\d,]+) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) ?\|$",
    (ROOT / "docs/presets.md").read_text(), re.MULTILINE,
)  # fmt: skip
HEADERS = {
    path.stem: re.sub(r"\n# ?", " ", "".join(re.findall(r"^#.*\n", path.read_text(), re.MULTILINE)))
    for path in sorted(PRESETS.glob("*.yaml"))
}
TIME = re.compile(r"(?i)(\w+) (minutes|hours?) (on 2 cores|of one core)")
WORDS = {"a": 1, "an": 1, "two": 2, "three": 3, "four": 4, "five": 5}
HOURS = {"s": 1 / 3600, "min": 1 / 60, "h": 1, "minutes": 1 / 60, "hour": 1, "hours": 1}


@cache
def products(name: str) -> list[Product]:
    return list(build(load_file(PRESETS / f"{name}.yaml")).products.values())


def amount(cell: str) -> float:
    """Return hours, or gigabytes, of the first number of a cell; 0 where there is none."""
    match = re.match(r"([\d.]+) (s|min|h|GB)", cell)
    return float(match[1]) * HOURS.get(match[2], 1) if match else 0.0


def hours(name: str, machine: Machine) -> tuple[float, float]:
    cpu, gpu, _ = cost._hours(products(name), machine)
    return cpu / 3600, gpu / 3600


def gpu_gb(name: str) -> float:
    return max(product.work.device_mb for product in products(name)) * 2**20 / 1e9


def disk_gb(name: str) -> float:
    works = [product.work for product in products(name)]
    return sum(work.bytes_disk for work in works if not work.elsewhere) / 1e9


def test_the_page_has_rows_and_headers_have_times() -> None:
    assert len(ROWS) > 8
    assert sum(bool(TIME.search(header)) for header in HEADERS.values()) > 8


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_rows_of_the_page_are_forecasts(row: tuple[str, ...]) -> None:
    name, jobs, *cells = row
    cpu, gpu = hours(name, DEVICES["a100"])
    memory = max(product.work.memory_mb for product in products(name)) * 2**20 / 1e9
    assert int(jobs.replace(",", "")) == len(products(name))
    forecast = [gpu, cpu, memory, disk_gb(name), gpu_gb(name)]
    assert [amount(cell) for cell in cells] == pytest.approx(forecast, rel=0.1)


@pytest.mark.parametrize("name", [name for name, text in HEADERS.items() if TIME.search(text)])
def test_times_of_headers_are_forecasts(name: str) -> None:
    """Headers have what was measured where a run was: within the bar of forecasts."""
    [(number, unit, cores)] = TIME.findall(HEADERS[name])
    stated = float(WORDS.get(number.lower(), number)) * HOURS[unit]
    forecast = hours(name, REFERENCE)[0] / (2 if cores == "on 2 cores" else 1)
    assert forecast / 2 < stated < forecast * 2


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
