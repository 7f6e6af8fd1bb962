"""The report: tables, figures and provenance as one page that needs nothing else."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from bindscope.studies.binding_information import findings as words
from bindscope.studies.binding_information.published import beside, why_not
from bindscope.tables.rows import PathLike

FigureEntry = tuple[str, PathLike, PathLike, str]

FIGURE_TITLES = {
    "scenes": "What the scenes look like",
    "tokens": "[CLS] against the patches",
    "layers": "Layer by layer",
    "attention": "Where the attention probe looks",
    "structure": "How the objects are written down",
    "training": "Training",
    "breakdown": "Object by object, feature by feature",
    "calibration": "Estimate against truth",
    "complexity": "More possible objects",
    "resolution": "Larger input images",
    "occlusion": "Hidden objects",
}
HEADLINE_FIGURE = "tokens"
CALIBRATION_FIGURE = "calibration"
LARGEST_SVG_BYTES = 400_000

LABELS = ("dataset", "model", "layer", "tokens", "probe", "control")
# (heading, explanation, column, whether an interval follows)
NUMBERS: tuple[tuple[str, str, str, bool], ...] = (
    ("H(O)", "entropy of the objects", "h_object_bits", False),
    ("loss O", "test loss of the paper's probe of the objects", "loss_object_bits", False),
    ("loss O, z = 0", "the same without a representation", "null_loss_object_bits", False),
    ("B_O, paper", "the paper's estimate of I(O;Z)", "binding_bits", True),
    ("B_O, bound", "our lower bound on I(O;Z)", "binding_lower_bound_bits", True),
    ("H(O|F)", "entropy of the objects given the features", "h_object_given_feature_bits", False),
    ("B*, paper", "the paper's estimate of I(O;Z|F)", "conditional_binding_bits", True),
    ("B*, bound", "our lower bound on I(O;Z|F)", "conditional_binding_lower_bound_bits", True),
    ("truth B_O", "closed form", "truth_bits", False),
    ("truth B*", "closed form", "truth_conditional_bits", False),
)


def build_page(
    config: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame],
    figures: Sequence[FigureEntry],
    *,
    published: pd.DataFrame | None = None,
    trends: pd.DataFrame | None = None,
    versions: Mapping[str, str] | None = None,
    keys: Mapping[str, str] | None = None,
    missing: Mapping[str, str] | None = None,
) -> str:
    """Build the report.

    Parameters
    ----------
    config
        The whole configuration as JSON-able mappings.
    tables
        `binding_information` and `priors`.
    figures
        (name, PNG, SVG, caption) in the order of the page; captions are plain text with
        paragraphs, ``code`` and *emphasis*.
    published, trends
        The papers' numbers, `resources/published/*.csv`.
    versions
        Versions of the libraries.
    keys
        `spec_key` and `code_key` of the report itself.
    missing
        Figures that were not drawn, and why.

    Returns
    -------
    str
        HTML: no external request, no date, no host; the same for the same arguments.
    """
    table = tables["binding_information"]
    drawn = {name: _figure(name, png, svg, caption) for name, png, svg, caption in figures}
    aside = (HEADLINE_FIGURE, CALIBRATION_FIGURE)
    return _template().render(
        title=config.get("report", {}).get("title", "Binding information"),
        **_sentences(table, config),
        headline_figure=drawn.get(HEADLINE_FIGURE),
        figures=[figure for name, figure in drawn.items() if name not in aside],
        missing=sorted((missing or {}).items()),
        calibration_figure=drawn.get(CALIBRATION_FIGURE),
        labels=_labels(table),
        numbers=NUMBERS,
        rows=_rows(table),
        priors=_records(tables["priors"]),
        comparable=_comparable(table, published),
        reasons=why_not(table, published) if published is not None else [],
        trends=_trends(trends),
        config=yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True, width=100),
        versions=sorted((versions or {}).items()),
        keys=sorted((keys or {}).items()),
        row_keys=_row_keys(table),
    )


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("bindscope.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["bits"] = two_decimals
    return environment.get_template("template.html.j2")


def _sentences(table: pd.DataFrame, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that is said in words, by its name in the template."""
    order = [str(model["name"]) for model in config.get("models", ())]
    return {
        "key_numbers": words.key_numbers(table, order),
        "headline": words.headline(table, config),
        "notes": words.seed_note(table, config),
        "warnings": words.warnings(table),
        "calibration": [*words.calibration(table), *words.controls(table)],
    }


def caption_html(text: str) -> Markup:
    """Turn a caption into paragraphs; only ``code`` and *emphasis* are marked up."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text.strip()):
        line = html.escape(" ".join(block.split()))
        line = re.sub(r"``(.+?)``", r"<code>\1</code>", line)
        line = re.sub(r"(?<![\w*])\*(?!\s)([^*]+?)\*(?![\w*])", r"<em>\1</em>", line)
        paragraphs.append(f"<p>{line}</p>")
    return Markup("\n".join(paragraphs))


def _figure(name: str, png: PathLike, svg: PathLike, caption: str) -> dict[str, Any]:
    """Embed a figure: the SVG, or the PNG where the SVG is large (many images in it)."""
    kind, content = "svg+xml", Path(svg).read_bytes()
    if len(content) > LARGEST_SVG_BYTES:
        kind, content = "png", Path(png).read_bytes()
    title = FIGURE_TITLES.get(name, name)
    first = re.split(r"(?<=\.)\s", " ".join(caption.split()), maxsplit=1)[0]
    return {
        "name": name,
        "title": title,
        "alt": f"{title}. {first.replace('``', '')} The text below the figure explains it.",
        "source": f"data:image/{kind};base64,{base64.b64encode(content).decode()}",
        "caption": caption_html(caption),
    }


def _labels(table: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return the labels to filter by with their values; layers by number."""
    found = []
    for label in LABELS:
        values = sorted(map(str, table[label].unique()))
        if label == "layer":
            values.sort(key=lambda v: (v == "final", int(v) if v.isdigit() else 0))
        found.append((label, values))
    return found


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    for record in _records(table):
        cells = []
        for _, _, column, with_interval in NUMBERS:
            value = record[column]
            low, high = record.get(f"{column}_low"), record.get(f"{column}_high")
            shown = with_interval and not (pd.isna(low) or pd.isna(high))
            cells.append(
                {
                    "value": "" if pd.isna(value) else repr(float(value)),
                    "text": two_decimals(value),
                    "interval": f"{two_decimals(low)} to {two_decimals(high)}" if shown else "",
                }
            )
        note = [record["status"]] if record["status"] != "ok" else []
        note += str(record["flags"]).split(";") if record["flags"] else []
        rows.append(
            {
                "labels": [(label, str(record[label])) for label in LABELS],
                "seed": record["seed"],
                "cells": cells,
                "note": ", ".join(note),
            }
        )
    return rows


def two_decimals(value: float | None) -> str:
    """Write a number of the table with two decimals and a real minus sign; null is empty."""
    return "" if value is None or pd.isna(value) else f"{value:z.2f}".replace("-", "\u2212")


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _comparable(table: pd.DataFrame, published: pd.DataFrame | None) -> list[dict[str, Any]]:
    return _records(beside(table, published)) if published is not None else []


def _trends(trends: pd.DataFrame | None) -> list[dict[str, Any]]:
    if trends is None:
        return []
    return [
        record | {"value": "" if pd.isna(record["value"]) else f"{record['value']:g}"}
        for record in _records(trends)
    ]


def _row_keys(table: pd.DataFrame) -> list[dict[str, Any]]:
    """One line per fit: its labels, seeds and the two keys."""
    if not len(table):
        return []
    grouped = table.groupby([*LABELS, "spec_key", "code_key"], sort=False)["seed"]
    seeds = grouped.apply(lambda values: ", ".join(map(str, sorted(values))))
    return _records(seeds.rename("seeds").reset_index())


def _plain(value: Any) -> Any:
    """Turn tuples and mappings into what YAML writes plainly."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
