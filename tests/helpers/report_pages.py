"""A page of the report, and what is in it."""

from html.parser import HTMLParser

from sample_tables import KEYS

from bindscope.report.page import build_page

CONFIG = {"models": [{"name": "vit-objects", "source": "controlled:objects"}]}


VOID = {"meta", "img", "link", "br", "hr", "input", "rect", "circle", "option"}


class Outline(HTMLParser):
    """Tags with attributes, the text, and whether tags are closed in order."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.open = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        """Note a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Check that the innermost tag is closed."""
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        """Note text."""
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def page_of(*parts, config=CONFIG):
    """Build a page."""
    return build_page(
        "A run",
        parts,
        config=config,
        versions={"bindscope": "0.1", "numpy": "2.4.6"},
        keys=KEYS,
    )
