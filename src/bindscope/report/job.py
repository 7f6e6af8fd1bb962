"""The report's job: every study's findings out of the run's tables, as one page."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bindscope import __version__
from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.core.keys import CLONE, numeric_versions
from bindscope.core.registries import resolve
from bindscope.figures.colors import is_empty
from bindscope.report.page import Drawing, Part, build_page
from bindscope.tables.schema import declared
from bindscope.tables.write import read_table

if TYPE_CHECKING:
    from bindscope.core.job import Job

log = logging.getLogger(__name__)
_CODE = ("src", "workflow", "Snakefile", "config", "resources")


def make_report(job: Job) -> str:
    """Make the page that tells what was found.

    Parameters
    ----------
    job
        Its spec lists the chapters: `study`, `title`, `findings` (``"module:function"``) and the
        title, caption and narrow version of the `figures` that were drawn, by name, and the names
        of its `tables`. Its inputs are the tables, the figures, and the studies' own files.

    Returns
    -------
    str
        HTML.
    """
    inputs = job.inputs
    parts = make_parts(job.spec["chapters"], inputs)
    config = inputs.content["config"]
    versions = {"bindscope": __version__, **numeric_versions()}
    log.info("code: %s", read_commit(CLONE))
    return build_page(
        config["report"]["title"],
        parts,
        config=config,
        versions=versions,
        keys=job.keys,
        missing=job.spec.get("missing", ()),
    )


def read_commit(folder: Path) -> str:
    """Name the commit of a git clone, and what differs from it; say so where there is none.

    It is for the log: the page is the same with and without git, and names the key of its code.
    """
    try:
        commit = _git(folder, "rev-parse", "HEAD").strip()
        changes = _git(folder, "status", "--porcelain", "--", *_CODE).splitlines()
    except (OSError, subprocess.CalledProcessError):
        return "no commit (no git clone, or git is not installed)"
    changed = ", ".join(line[3:] for line in changes)
    return f"commit {commit}" + (f" with changes in {changed}" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    """Return what git says of a clone; an error where the folder only lies in one."""
    command = ["git", f"--git-dir={folder / '.git'}", f"--work-tree={folder}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout


def make_parts(chapters: Sequence[Mapping[str, Any]], inputs: Inputs) -> list[Part]:
    """Ask each study for its chapter, and put its figures beside it.

    Parameters
    ----------
    chapters
        The spec's `chapters`.
    inputs
        What the report is made from.

    Raises
    ------
    StoreError
        If a table is missing or does not fit its schema.
    """
    schemas = declared()
    names = {product.names["table"]: product.path for product in inputs.get("tables")}
    tables = {name: read_table(path, schemas[name]) for name, path in names.items()}
    # In the order of the graph; a spec does not keep the order of its keys.
    drawn = {product.names["figure"]: product for product in inputs.get("figures")}
    about = Inputs(content=inputs.content["config"], resources=inputs.resources)
    return [
        Part(
            chapter["study"],
            chapter["title"],
            resolve(chapter["findings"])(tables, about),
            tuple(_drawings(chapter["figures"], drawn)),
            tuple(chapter["tables"]),
        )
        for chapter in chapters
    ]


def _drawings(
    about: Mapping[str, Sequence[str]], drawn: Mapping[str, ProductFiles]
) -> Iterator[Drawing]:
    """Yield the figures of a chapter that show something, each with its narrow version."""
    narrow_versions = {narrow for _, _, narrow in about.values()}
    for name, product in drawn.items():
        if name not in about or name in narrow_versions or is_empty(product.files["svg"]):
            continue
        title, caption, narrow = about[name]
        svg = drawn[narrow].files["svg"] if narrow in drawn else ""
        yield Drawing(name, title, product.path, product.files["svg"], caption, svg)
