"""The report's job: every study's findings out of the run's tables, as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bindscope.core.interfaces import Given, Inputs
from bindscope.core.keys import numeric_versions
from bindscope.core.registries import resolve
from bindscope.report.page import Drawing, Part, build_page
from bindscope.tables.schema import declared
from bindscope.tables.write import read_table

if TYPE_CHECKING:
    from bindscope.core.job import Job


def make_report(job: Job) -> str:
    """Make the page that tells what was found.

    Parameters
    ----------
    job
        Its spec lists the chapters: `study`, `title`, `findings` (``"module:function"``) and the
        titles of the `figures` that were drawn, by name. Its inputs are the tables, the figures,
        a caption per figure, and the studies' own files.

    Returns
    -------
    str
        HTML.
    """
    inputs = job.inputs
    parts = make_parts(job.spec["chapters"], inputs)
    config = inputs.content["config"]
    return build_page(
        config["report"]["title"], parts, config=config, versions=numeric_versions(),
        keys=job.keys, missing=job.spec.get("missing", ()),
    )  # fmt: skip


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
    names = {given.names["table"]: given.path for given in inputs.of("tables")}
    tables = {name: read_table(path, schemas[name]) for name, path in names.items()}
    # In the order of the graph; a spec does not keep the order of its keys.
    drawn = {given.names["figure"]: given for given in inputs.of("figures")}
    about = Inputs(content=inputs.content["config"], resources=inputs.resources)
    return [
        Part(
            chapter["study"],
            chapter["title"],
            resolve(chapter["findings"])(tables, about),
            tuple(
                _drawing(given, chapter["figures"][name], inputs.resources)
                for name, given in drawn.items()
                if name in chapter["figures"]
            ),
        )
        for chapter in chapters
    ]


def _drawing(figure: Given, title: str, resources: Mapping[str, str]) -> Drawing:
    name = figure.names["figure"]
    caption = Path(resources[name]).read_text(encoding="utf-8")
    return Drawing(name, title, figure.path, figure.files["svg"], caption)
