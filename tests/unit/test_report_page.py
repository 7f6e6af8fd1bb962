"""The page stands alone, is the same for the same input, and says what the table says."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from sample_tables import (
    KEYS,
    default_table,
    known_rows,
    make_row,
    make_table,
    paper_table,
    priors_table,
    vit_rows,
)

from bindscope.report.page import FIGURE_TITLES, LARGEST_SVG_BYTES, build_page, caption_html
from bindscope.studies.binding_information import findings as words
from bindscope.studies.binding_information.published import TREND_COLUMNS, read_published

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "resources" / "published"
CONFIG = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
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


@pytest.fixture
def figures(tmp_path):
    made = []
    for name in ("tokens", "layers", "calibration"):
        (tmp_path / f"{name}.svg").write_text(f"<svg><title>{name}</title></svg>")
        (tmp_path / f"{name}.png").write_bytes(b"\x89PNG")
        caption = (ROOT / "workflow" / "report" / f"{name}.rst").read_text()
        made.append((name, tmp_path / f"{name}.png", tmp_path / f"{name}.svg", caption))
    return made


def page_of(table, figures=(), config=CONFIG, **options):
    """Build a page with all that a run gives it."""
    return build_page(
        config,
        {"binding_information": table, "priors": priors_table()},
        figures,
        published=read_published(PUBLISHED / "binding_information.csv"),
        trends=read_published(PUBLISHED / "trends.csv", TREND_COLUMNS),
        versions={"numpy": "2.4.6"},
        keys=KEYS,
        **options,
    )


def text_of(page):
    """Return the page's text with single spaces."""
    return " ".join("".join(Outline(page).text).split())


def test_the_page_needs_nothing_else(figures):
    page = page_of(default_table(), figures)
    outline = Outline(page)
    assert not outline.open
    for tag, attributes in outline.tags:
        source = attributes.get("src") or ""
        assert not source or source.startswith("data:image/")
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert tag != "script" or "src" not in attributes
        target = attributes.get("href") or "#"
        assert target.startswith("#") or (tag == "a" and target.startswith("https://arxiv.org/"))
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in page


def test_the_page_is_the_same_for_the_same_input(figures):
    pages = {page_of(default_table(), figures) for _ in range(2)}
    assert len(pages) == 1
    page = pages.pop()
    assert not re.search(r"20\d\d-\d\d-\d\d", re.sub(r"base64,[^\"]*", "", page))
    assert str(ROOT) not in page


def test_links_lead_somewhere_and_images_are_described(figures):
    outline = Outline(page_of(default_table(), figures))
    targets = {attributes["id"] for _, attributes in outline.tags if "id" in attributes}
    links = {a["href"][1:] for tag, a in outline.tags if tag == "a" and a["href"][0] == "#"}
    assert links <= targets
    images = [attributes for tag, attributes in outline.tags if tag == "img"]
    assert len(images) == 3
    assert all(len(image["alt"]) > 40 for image in images)
    headers = [attributes for tag, attributes in outline.tags if tag == "th"]
    assert all("scope" in header for header in headers)


def test_every_row_can_be_filtered_and_sorted():
    table = default_table()
    outline = Outline(page_of(table))
    cells = [a for tag, a in outline.tags if tag == "td" and "data-label" in a]
    assert len(cells) == 6 * len(table)
    selects = [a["data-label"] for tag, a in outline.tags if tag == "select"]
    assert selects == ["dataset", "model", "layer", "tokens", "probe", "control"]
    values = [a["data-value"] for tag, a in outline.tags if tag == "td" and "data-value" in a]
    assert len(values) == 11 * len(table)
    assert all(value == "" or np.isfinite(float(value)) for value in values)


def test_layers_are_listed_by_number():
    rows = [make_row(layer=layer, n_layers=12) for layer in ("10", "2", "final", "0")]
    page = page_of(make_table(rows))
    options = re.findall(r'data-label="layer".*?</select>', page, re.DOTALL)[0]
    assert re.findall(r'value="([^"]+)"', options) == ["0", "2", "10", "final"]


def test_the_headline_says_what_the_table_says():
    table = default_table()
    text = text_of(page_of(table))
    row = table[(table["model"] == "vit-objects") & (table["layer"] == "4")]
    row = row[(row["tokens"] == "cls") & (row["probe"] == "quadratic")].iloc[0]
    whole = words.bits(row["binding_lower_bound_bits"])
    part = words.bits(row["conditional_binding_lower_bound_bits"])
    assert f"finds at least {whole} of the 26.5 bits, and at least {part} bits of binding" in text
    assert "vit-objects, a vision transformer trained to name the objects:" in text
    assert "and no binding (lower bound" in text
    assert "an untrained vision transformer" in text
    assert "trained with 1 seed. That is too few" in text


def test_an_assumed_prior_makes_no_bounds():
    table = default_table()
    table["flags"] = "assumed_prior"
    findings = words.headline(table, CONFIG)
    text = " ".join(f.lead + " ".join(sentence for _, sentence in f.points) for f in findings)
    assert "nobody knows how these scenes came about" in text
    assert "finds about" in text
    assert "at least" not in text
    assert "ower bound " not in text.replace("is no lower bound", "")
    labels = [number.label for number in words.key_numbers(table, ["vit-objects"])]
    assert any("by estimate" in label for label in labels)
    assert not any("at least" in label for label in labels)
    assert "assumed_prior: nobody knows" in text_of(page_of(table))


def test_three_training_seeds_are_enough_for_a_claim():
    models = [
        {"name": f"{objective}-{seed}", "source": f"controlled:{objective}", "seed": seed}
        for objective in ("objects", "features")
        for seed in (0, 1, 2)
    ]
    table = make_table([make_row(model["name"]) for model in models])
    assert words.seed_note(table, {"models": models}) == []
    assert "2 seeds" in words.seed_note(table, {"models": models[:2] + models[3:5]})[0]


def test_the_spokesman_is_fixed_and_not_the_best():
    rows = [make_row(probe="dnn", loss_object=5.0, loss_given=3.0), make_row(probe="quadratic")]
    chosen = words.speakers(make_table(rows), [])
    assert list(chosen["family"]) == ["quadratic"]


def test_calibration_counts_what_is_above_the_truth():
    text = " ".join(words.calibration(default_table()))
    assert "18 fits to 6 encoders" in text
    assert "No lower bound exceeds" in text
    assert "above the truth by more than 0.1 bits in 4 of 18 fits, by 7.4 bits at most" in text
    rows = known_rows()
    rows[0] |= {
        "binding_lower_bound_bits": 3.0,
        "binding_lower_bound_bits_low": 2.9,
        "binding_lower_bound_bits_high": 3.1,
    }
    table = make_table(rows)
    assert "In 1 of them a lower bound exceeds the truth" in " ".join(words.calibration(table))
    assert "above_truth" in text_of(page_of(table))
    assert words.calibration(make_table(vit_rows())) == []


def test_flags_failures_and_controls_stand_before_the_numbers():
    rows = [make_row(flags="collapsed;not_converged"), make_row("other")]
    lost = ("binding_bits", "binding_ratio", "binding_bits_low", "binding_bits_high")
    rows[1] |= dict.fromkeys(lost) | {"status": "failed", "reason": "the loss is <infinite>"}
    rows.append(make_row(control="shuffled_labels"))
    page = page_of(make_table(rows))
    text = text_of(page)
    assert "other, layer 4, cls, quadratic, seed 0: the loss is <infinite>" in text
    assert text.index("carry a warning") < text.index("what goes with what. In the last layer")
    assert "collapsed: a probe of the row gives the same answer" in text
    assert "In 1 control fit labels and scenes were paired at random" in text
    assert "<infinite>" not in page
    assert "carry a warning" not in text_of(page_of(default_table()))


def test_the_papers_numbers_stand_beside_ours_or_it_is_said_why():
    text = text_of(page_of(paper_table()))
    assert re.search(r"balanced-colorshape.?dinov2-large.?cls.?quadratic.?loss_object_bits", text)
    assert "No number of this run" not in text
    text = text_of(page_of(default_table()))
    assert "No number of this run stands beside one of the paper's." in text
    assert "this run has no dataset of that name" in text


def test_provenance_names_configuration_versions_and_keys():
    page = page_of(default_table(), missing={"training": "No history."})
    text = text_of(page)
    assert "numpy 2.4.6." in text
    assert KEYS["code_key"] in text
    assert "training: No history." in text
    shown = page[page.index("<pre") : page.index("</pre>")]
    assert "name: vit-objects" in shown
    assert "known-answer:zero" in shown


def test_a_run_of_known_answers_only_has_a_page(figures):
    page = page_of(make_table(known_rows()), figures[2:])
    assert "No model other than known-answer encoders" in text_of(page)
    assert text_of(page_of(default_table().iloc[:0], config={}))


def test_large_vector_figures_are_embedded_as_pixels(figures):
    name, png, svg, caption = figures[0]
    svg.write_text("x" * (LARGEST_SVG_BYTES + 1))
    page = page_of(default_table(), [(name, png, svg, caption)])
    assert "data:image/png;base64" in page
    assert "data:image/svg+xml" not in page


def test_captions_are_escaped_and_marked_up():
    markup = caption_html("One *two*\nthree ``<b>`` B*.\n\nB* of H(O|F)*2.\n")
    assert markup == (
        "<p>One <em>two</em> three <code>&lt;b&gt;</code> B*.</p>\n<p>B* of H(O|F)*2.</p>"
    )


def test_every_configured_figure_has_a_title():
    assert set(CONFIG.get("report", {}).get("figures", FIGURE_TITLES)) <= set(FIGURE_TITLES)
