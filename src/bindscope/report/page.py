"""The report: chapters, figures and provenance as one page that needs nothing else."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from bindscope.core.addresses import redacted
from bindscope.report.chapter import Chapter, Section

LARGEST_SVG_BYTES = 400_000


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
        Plain text with paragraphs, ``code`` and *emphasis*.
    """

    name: str
    title: str
    png: str
    svg: str
    caption: str


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
    """

    name: str
    title: str
    chapter: Chapter
    figures: tuple[Drawing, ...] = ()


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
        The chapters.
    config
        The whole configuration, as JSON has it.
    versions
        Versions of the libraries by name.
    keys
        `spec_key` and `code_key` of the report itself.
    missing
        Models of the configuration whose weights could not be had.

    Returns
    -------
    str
        HTML: no external request, no date, no host; the same for the same arguments.
    """
    return _template().render(
        title=title,
        parts=[_laid_out(part) for part in parts],
        config=yaml.safe_dump(
            _without_keys(config), sort_keys=False, allow_unicode=True, width=100
        ),
        versions=sorted(versions.items()),
        keys=sorted(keys.items()),
        missing=missing,
        provenance=[table for part in parts for table in part.chapter.provenance],
    )


def _without_keys(section: Any) -> Any:
    """Copy a part of the configuration, addresses without what may be a signature or a key."""
    if isinstance(section, Mapping):
        return {
            name: redacted(value) if name == "url" else _without_keys(value)
            for name, value in section.items()
        }
    return [_without_keys(value) for value in section] if isinstance(section, list) else section


def caption_html(text: str) -> Markup:
    """Turn a caption into paragraphs; only ``code`` and *emphasis* are marked up."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", text.strip()):
        line = html.escape(" ".join(block.split()))
        line = re.sub(r"``(.+?)``", r"<code>\1</code>", line)
        line = re.sub(r"(?<![\w*])\*(?!\s)([^*]+?)\*(?![\w*])", r"<em>\1</em>", line)
        paragraphs.append(f"<p>{line}</p>")
    return Markup("\n".join(paragraphs))


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
    """Give every figure its place: with the findings, in a section that names it, or in its own."""
    chapter = part.chapter
    drawn = {figure.name: _embedded(figure) for figure in part.figures}
    placed = {*chapter.headline, *(name for s in chapter.sections for name in s.figures)}
    own = [
        Section(figure.name, figure.title, figures=(figure.name,))
        for figure in part.figures
        if figure.name not in placed
    ]
    sections = [
        {
            "anchor": f"{part.name}-{section.name}",
            "content": section,
            "figures": [drawn[name] for name in section.figures if name in drawn],
        }
        for section in (*own, *chapter.sections)
    ]
    return {
        "anchor": part.name,
        "title": part.title,
        "chapter": chapter,
        "headline": [drawn[name] for name in chapter.headline if name in drawn],
        "sections": [section for section in sections if _has_content(section)],
    }


def _has_content(section: Mapping[str, Any]) -> bool:
    content: Section = section["content"]
    return bool(section["figures"] or content.paragraphs or content.points or content.tables)


def _embedded(figure: Drawing) -> dict[str, Any]:
    """Embed a figure: the SVG, or the PNG where the SVG is large (many images in it)."""
    kind, content = "svg+xml", Path(figure.svg).read_bytes()
    if len(content) > LARGEST_SVG_BYTES:
        kind, content = "png", Path(figure.png).read_bytes()
    first = re.split(r"(?<=\.)\s", " ".join(figure.caption.split()), maxsplit=1)[0]
    return {
        "alt": f"{figure.title}. {first.replace('``', '')} The text below the figure explains it.",
        "source": f"data:image/{kind};base64,{base64.b64encode(content).decode()}",
        "caption": caption_html(figure.caption),
    }
