"""The report: chapters, figures and provenance as one page that needs nothing else."""

from __future__ import annotations

import base64
import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from bindscope.core.addresses import redacted
from bindscope.core.interfaces import CONDITIONAL
from bindscope.figures.colors import LARGEST_SVG_BYTES, WIDTH_IN
from bindscope.report.chapter import Chapter, PageTable, Section, numbers_first

POINTS_PER_INCH = 72
MOST_VALUES = 60  # that an alternative text lists, but for the figure that shows the result


@dataclass(frozen=True)
class Drawing:
    """A figure of the run.

    Attributes
    ----------
    name, title
        Its name, and its heading on the page.
    png, svg
        Its files.
    caption
        Plain text; see `core.interfaces.FigureEntry`.
    narrow
        The SVG that a narrow screen shows; empty for the same.
    """

    name: str
    title: str
    png: str
    svg: str
    caption: str
    narrow: str = ""


@dataclass(frozen=True)
class Part:
    """A chapter with its place on the page.

    Attributes
    ----------
    name, title
        The study's name and title.
    chapter
        What the study says.
    figures
        Its figures, in the order of the page.
    tables
        Names of its whole tables, to which the page links.
    """

    name: str
    title: str
    chapter: Chapter
    figures: tuple[Drawing, ...] = ()
    tables: tuple[str, ...] = ()


def build_page(
    title: str,
    parts: Sequence[Part],
    *,
    config: Mapping[str, Any],
    versions: Mapping[str, str],
    keys: Mapping[str, str],
    missing: Sequence[str] = (),
) -> str:
    """Build the report.

    Parameters
    ----------
    title
        Its heading.
    parts
        The chapters. The first screen shows the lead, the figure and the caveats of the first.
    config
        The whole configuration, as JSON has it.
    versions
        Versions of bindscope and of the libraries by name.
    keys
        `spec_key` and `code_key` of the report itself.
    missing
        Models of the configuration whose weights could not be had.

    Returns
    -------
    str
        HTML: no external request, no date, no host; the same for the same arguments.
    """
    laid_out = [_laid_out(part) for part in parts]
    return _template().render(
        title=title,
        parts=laid_out,
        config=yaml.safe_dump(
            _without_keys(config), sort_keys=False, allow_unicode=True, width=100
        ),
        versions=sorted(versions.items()),
        keys=sorted(keys.items()),
        missing=missing,
        groups=_groups(config),
        provenance=[table for part in parts for table in part.chapter.provenance],
    )


def _groups(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the models of each group that a study names, seeds spelled out."""
    names = {
        str(model.get("name")): [f"{model['name']}-{seed}" for seed in model.get("seeds") or ()]
        for model in config.get("models") or ()
    }
    groups: dict[str, list[str]] = {name: seeds for name, seeds in names.items() if seeds}
    for section in (config.get("studies") or {}).values():
        for group in (section or {}).get("groups") or ():
            members = [names.get(model) or [model] for model in group["models"]]
            groups[str(group["name"])] = [name for seeds in members for name in seeds]
    return groups


def _without_keys(section: Any) -> Any:
    """Copy a part of the configuration, addresses without what may be a signature or a key."""
    if isinstance(section, Mapping):
        return {
            name: redacted(value) if name == "url" else _without_keys(value)
            for name, value in section.items()
        }
    return [_without_keys(value) for value in section] if isinstance(section, list) else section


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("bindscope.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html.j2")


def _laid_out(part: Part) -> dict[str, Any]:
    """Give every figure its place: with the findings, in a section that names it, or the last."""
    chapter = part.chapter
    names = {figure.name for figure in part.figures}
    headline = [name for name in chapter.headline if name in names][:1]
    drawn = {
        figure.name: _embedded(figure, None if figure.name in headline else MOST_VALUES)
        for figure in part.figures
    }
    placed = {*headline, *(name for s in chapter.sections for name in s.figures)}
    unplaced = tuple(figure.name for figure in part.figures if figure.name not in placed)
    in_order = sorted(chapter.sections, key=lambda section: not section.is_open)
    sections: list[dict[str, Any]] = [
        {
            "anchor": f"{part.name}-{section.name}",
            "content": section,
            "alone": len(section.tables) == 1 and not section.figures,
            "figures": [
                drawn[name] for name in section.figures if name in drawn and name not in headline
            ],
        }
        for section in (*in_order, Section("figures", "More figures", figures=unplaced))
    ]
    sections = [section for section in sections if _has_content(section)]
    return {
        "anchor": part.name,
        "title": part.title,
        "chapter": chapter,
        "headline": [drawn[name] for name in headline],
        "sections": sections,
        "files": {
            name: [f"tables/{name}.{kind}" for kind in ("csv", "parquet")] for name in part.tables
        },
        "filters": _filters([t for s in sections for t in s["content"].tables]),
    }


def _filters(tables: Sequence[PageTable]) -> list[tuple[str, list[str]]]:
    """Return what the tables of a part can be selected by: headings, and values of all of them."""
    values: dict[str, dict[str, None]] = {}
    for table in tables:
        for _, heading, names in table.choices:
            values.setdefault(heading, {}).update(dict.fromkeys(names))
    return [
        (heading, sorted(names, key=numbers_first))
        for heading, names in values.items()
        if len(names) > 1
    ]


def _has_content(section: Mapping[str, Any]) -> bool:
    content: Section = section["content"]
    return bool(section["figures"] or content.paragraphs or content.points or content.tables)


def _embedded(figure: Drawing, most: int | None) -> dict[str, Any]:
    """Embed a figure: the SVG, or the PNG where the SVG is large (many images in it).

    Its alternative text lists all values, or the first `most`.
    """
    content = Path(figure.svg).read_bytes()
    svg = content.decode()
    caption = _caption(figure.caption, svg)
    first = re.split(r"(?<=\.)\s", caption, maxsplit=1)[0]
    alt = f"{figure.title}. {first} {_values(svg, most)}".strip()
    embedded: dict[str, Any] = {
        "title": figure.title,
        "alt": alt,
        "caption": caption,
        "svg": "",
        "source": "",
        "narrow": "",
        "files": [f"figures/{Path(path).name}" for path in (figure.png, figure.svg)],
    }
    if figure.narrow:
        narrow = _inline(Path(figure.narrow).read_text(encoding="utf-8"), f"{figure.name}-n", alt)
        embedded["narrow"] = Markup(narrow.replace("<svg ", '<svg class="narrow" ', 1))
    if len(content) > LARGEST_SVG_BYTES:
        png = base64.b64encode(Path(figure.png).read_bytes()).decode()
        return {**embedded, "source": f"data:image/png;base64,{png}"}
    return {**embedded, "svg": Markup(_inline(svg, figure.name, alt))}


def _caption(caption: str, svg: str) -> str:
    """Return a caption without what it says of marks that the figure does not have."""
    words = html.unescape(" ".join(re.findall(r"<text\b[^>]*>([^<]*)</text>", svg)))
    return CONDITIONAL.sub(lambda match: match[2] if match[1] in words else "", caption)


def _values(svg: str, most: int | None = None) -> str:
    """Return the values that a figure shows, panel by panel, for a reader who cannot see it.

    A value that all rows of a panel share is written once.
    """
    panels: dict[str, list[tuple[str, str, str]]] = {}
    for names_of_mark, title in re.findall(r'data-names="([^"]*)"><title>([^<]*)</title>', svg):
        names = html.unescape(names_of_mark).split("|")
        value = html.unescape(title).removeprefix(f"{', '.join(names)}: ")
        panel, row, *quantity = [*names, "", ""]
        panels.setdefault(panel, []).append((row, ", ".join(filter(None, quantity)), value))
    texts, n, more = [], 0, 0
    for panel, values in panels.items():
        in_words = []
        for n_values, text in _rows_in_words(values):
            n += n_values
            if most is None or n <= most:
                in_words.append(text)
            else:
                more += n_values
        if in_words:
            texts.append(": ".join(filter(None, (panel, "; ".join(in_words)))))
    rest = f" And {more} more, in the table next to this page." if more else ""
    return f"Values: {'. '.join(texts)}.{rest}" if texts else ""


def _rows_in_words(values: Sequence[tuple[str, str, str]]) -> list[tuple[int, str]]:
    """Return for each row of a panel how many values it has, and a text with its name.

    Values are (row, quantity, value); one that all rows with the quantity share comes first.
    """
    rows: dict[str, dict[str, list[str]]] = {}
    n_same = Counter((quantity, value) for _, quantity, value in set(values))
    n_rows = Counter(quantity for _, quantity in {(row, quantity) for row, quantity, _ in values})
    for row, quantity, value in values:
        shared = bool(quantity) and 1 < n_same[quantity, value] == n_rows[quantity]
        listed = rows.setdefault("all rows" if shared else row, {}).setdefault(quantity, [])
        if value not in listed or not shared:
            listed.append(value)
    order = sorted(rows.items(), key=lambda item: item[0] != "all rows")
    return [(sum(map(len, row.values())), _row_in_words(name, row)) for name, row in order]


def _row_in_words(name: str, quantities: Mapping[str, Sequence[str]]) -> str:
    listed = (
        ": ".join(filter(None, (quantity, ", ".join(values))))
        for quantity, values in quantities.items()
    )
    return ": ".join(filter(None, (name, "; ".join(listed))))


def _inline(svg: str, name: str, alt: str) -> str:
    """Make an SVG a part of the page: ids of its own, no declarations, no sizes, a description."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style [^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<[^>]+ id="|href="#|url\(#|data-of=")', rf"\g<1>{name}-", svg)
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="\S+ \S+ (\S+) [^"]*"', head)
    width = float(box[1]) / (POINTS_PER_INCH * WIDTH_IN) if box else 1.0
    label = f'role="img" aria-label="{html.escape(alt)}" style="--width: {min(width, 1.0):.3f}"'
    return f"<svg {label} {box[0] if box else ''}>{rest}"
