"""Pages of the site that are not files in docs/, and links to files outside it (a hook of MkDocs).

Pages come from the repository's other Markdown files or from code. A link to a file that is no page
becomes the file's path, because the site does not contain the file.
"""

from __future__ import annotations

import posixpath
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from markdown.extensions.toc import slugify
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

import pages  # noqa: E402

CONFIGURATION = "config/README.md"
COPIES = {  # page of the site: file of the repository
    "configuration.md": CONFIGURATION,
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
GENERATED = {  # page of the site: function that writes it
    "reference/commands.md": pages.command_page,
    "reference/errors.md": pages.error_page,
    "reference/gallery.md": pages.gallery_page,
    "papers.md": pages.papers_page,
}
# Sections of the configuration that are pages: `datasets[]`, `models[]`, `studies.same_object`, ...
_SECTION = re.compile(
    r"^(?:###|####) `((?:include|datasets|models|studies|report)[\w.]*)(?:\[\])?`\n", re.M
)
_HEADING = re.compile(r"^#+ (.+)$", re.M)
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    texts = {page: (ROOT / source).read_text("utf-8") for page, source in COPIES.items()}
    texts |= configuration_pages() | {page: write() for page, write in GENERATED.items()}
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Turn links to the repository's files into links to pages, or into paths."""
    name = page.file.src_uri
    if name in GENERATED:
        return text
    text = text.replace("<!-- published numbers -->", pages.published_tables())
    source = CONFIGURATION if name in configuration_pages() else COPIES.get(name, f"docs/{name}")
    return relink(text, source, name)


@cache
def configuration_pages() -> dict[str, str]:
    """Return the reference of the configuration by page: an overview, and one per section."""
    overview, *parts = _SECTION.split((ROOT / CONFIGURATION).read_text("utf-8"))
    names, texts = parts[::2], parts[1::2]
    by_page = {
        f"configuration/{name.removeprefix('studies.')}.md": f"# `{name}`\n{text}"
        for name, text in zip(names, texts, strict=True)
    }
    listed = [f"- [`{name}`]({page})" for name, page in zip(names, by_page, strict=True)]
    return {"configuration.md": f"{overview}\n" + "\n".join(listed) + "\n", **by_page}


@cache
def configuration_page_of(anchor: str) -> str:
    """Return the page of the configuration that has a heading, by its anchor in the file."""
    for page, text in configuration_pages().items():
        if anchor in {slugify(heading.replace("`", ""), "-") for heading in _HEADING.findall(text)}:
            return page
    return "configuration.md"


def relink(text: str, source: str, page: str) -> str:
    """Rewrite the links of a page.

    Parameters
    ----------
    text
        Markdown.
    source
        Path in the repository that its links start from.
    page
        Path in the site.
    """

    def target(match: re.Match[str]) -> str:
        words, link = match.groups()
        path, _, anchor = link.partition("#")
        if not path and source == CONFIGURATION:
            path = posixpath.basename(source)
        if not path or ":" in path:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if path.startswith("docs/papers"):  # a folder of tables, which are sections of one page
            paper = posixpath.basename(path).removesuffix(".csv")
            path, anchor = "docs/papers.md", paper if paper in pages.PAPERS else ""
        copied = {file: name for name, file in COPIES.items()}
        in_docs = path.removeprefix("docs/") if path.startswith("docs/") else None
        name = copied.get(path) or in_docs
        if name == "configuration.md" and anchor:
            name = configuration_page_of(anchor)
        if name:
            start = posixpath.dirname(page) or "."
            return f"[{words}]({posixpath.relpath(name, start)}{'#' * bool(anchor)}{anchor})"
        if not (ROOT / path).exists():
            return match[0]
        return words if posixpath.basename(path) in words else f"{words} (`{path}`)"

    return _LINK.sub(target, text)
