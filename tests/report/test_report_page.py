"""The page stands alone, is the same for the same input, and knows no study."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup
from report_pages import CONFIG, VOID, Outline, page_of
from sample_tables import default_table, priors_table

from bindscope.core.interfaces import Inputs, ProductFiles
from bindscope.core.registries import studies
from bindscope.figures.colors import LARGEST_SVG_BYTES
from bindscope.report.chapter import (
    Chapter,
    Column,
    Finding,
    KeyNumber,
    Section,
    Warned,
    page_table,
)
from bindscope.report.claims import claims_section
from bindscope.report.job import make_parts, read_commit
from bindscope.report.page import Drawing, Part
from bindscope.statistics.claims import Claim, Effect, judge
from bindscope.studies.binding_information.study import STUDY
from bindscope.studies.binding_information.tables import BINDING_INFORMATION
from bindscope.studies.datasets.tables import PRIORS
from bindscope.tables.numbers import number
from bindscope.tables.write import write_table

ROOT = Path(__file__).parents[2]
LENGTHS = pd.DataFrame(
    {
        "model": ["long", "short", "short"],
        "layer": ["10", "2", "final"],
        "length": [3.14159, -1.0, None],
        "length_low": [3.0, None, None],
        "length_high": [3.25, None, None],
        "key": ["ab", "cd", "ef"],
    }
)
COLUMNS = (
    Column("model", "model", "label"),
    Column("layer", "layer", "label"),
    Column("length", "length", "number", "from end to end", interval=True),
    Column("key", "key", "code"),
)


def text_of(page):
    """Return the page's text with single spaces."""
    return " ".join("".join(Outline(page).text).split())


def drawing(folder, name, title="A figure", svg=None):
    """Write a figure and its caption."""
    (folder / f"{name}.svg").write_text(svg or f"<svg><title>{name}</title></svg>")
    (folder / f"{name}.png").write_bytes(b"\x89PNG")
    caption = f"What {name} shows. More about it."
    return Drawing(name, title, f"{folder}/{name}.png", f"{folder}/{name}.svg", caption)


def toy(folder):
    """Make a chapter with something in every place."""
    chapter = Chapter(
        lead=("Long is longer.",),
        introduction=Markup("<p>An <em>introduction</em>.</p>"),
        warnings=(Warned("bent: not straight", ("short, layer 2",)),),
        key_numbers=(KeyNumber("3.1", "cm", "the longest"),),
        findings=(Finding("There are two:", (("long", ": is long."), ("<short>", "is short."))),),
        notes=("Two are few.",),
        headline=("overview", "never-drawn"),
        caveats=("It is only a toy.",),
        sections=(
            Section("trust", "Is it so?", ("It is.",), ("A point.",), ("check",)),
            Section("rows", "All", tables=(page_table("Lengths", COLUMNS, LENGTHS),)),
            Section("nothing", "Nothing is here", figures=("never-drawn",)),
        ),
        provenance=(page_table("Keys", COLUMNS, LENGTHS, folded=True),),
    )
    figures = [drawing(folder, name) for name in ("check", "detail", "overview")]
    return Part("toy", "How long things are", chapter, tuple(figures))


@pytest.fixture
def page(tmp_path):
    """Two chapters, so that nothing may be there once only."""
    second = Part("other", "Another study", toy(tmp_path).chapter)
    return page_of(toy(tmp_path), second)


def test_the_page_needs_nothing_else(page):
    outline = Outline(page)
    assert not outline.open
    for tag, attributes in outline.tags:
        source = attributes.get("src") or ""
        assert not source or source.startswith("data:image/")
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert tag != "script" or "src" not in attributes
        assert (attributes.get("href") or "#").startswith(("#", "figures/", "tables/"))
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in page


def test_the_page_is_the_same_for_the_same_input(page, tmp_path):
    assert page == page_of(toy(tmp_path), Part("other", "Another study", toy(tmp_path).chapter))
    assert not re.search(r"20\d\d-\d\d-\d\d", page)
    assert str(tmp_path) not in page


def test_the_log_names_the_commit_and_what_differs_from_it(tmp_path):
    """The page does not: it is the same with and without git."""
    assert read_commit(tmp_path) == "no commit (no git clone, or git is not installed)"
    (tmp_path / "src").mkdir()
    file = tmp_path / "src/a.py"
    file.write_text("a = 1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True)
    commit = read_commit(tmp_path)
    assert re.fullmatch(r"commit [0-9a-f]{40}", commit)
    (tmp_path / "notes.txt").touch()  # no code
    assert read_commit(tmp_path) == commit
    file.write_text("a = 2")
    assert read_commit(tmp_path) == f"{commit} with changes in src/a.py"
    (tmp_path / "inside").mkdir()
    assert read_commit(tmp_path / "inside").startswith("no commit")


def test_ids_are_unique_links_lead_somewhere_and_images_are_described(page):
    outline = Outline(page)
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    hrefs = {a["href"] for tag, a in outline.tags if tag == "a"}
    links = {href[1:] for href in hrefs if href.startswith("#")}
    assert links == {name for name in ids if name != "groups"}
    assert {"toy", "toy-figures", "toy-trust", "other-rows", "provenance"} <= links
    images = [a for tag, a in outline.tags if tag == "svg" and a.get("role") == "img"]
    assert len(images) == 3
    assert all(len(image["aria-label"]) > 20 for image in images)
    headers = [attributes for tag, attributes in outline.tags if tag == "th"]
    assert headers
    assert all("scope" in header for header in headers)


def test_one_filter_per_part_is_for_all_its_tables_and_columns_can_be_sorted(page):
    tags = Outline(page).tags
    assert sum(a.get("class") == "filters" for _, a in tags) == 2
    selects = [a["data-filter"] for tag, a in tags if tag == "select"]
    assert selects == ["model", "layer"] * 2
    heads = [a["data-filter"] for tag, a in tags if tag == "th" and "data-filter" in a]
    assert heads == ["model", "layer"] * 4  # of two tables, and of two in the provenance
    options = re.findall(r'<select data-filter="layer".*?</select>', page, re.DOTALL)[0]
    assert re.findall(r'value="([^"]+)"', options) == ["2", "10", "final"]
    values = [a["data-value"] for tag, a in tags if tag == "td" and "data-value" in a]
    assert values == ["3.14159", "-1.0", ""] * 4
    assert all(value == "" or np.isfinite(float(value)) for value in values)
    assert page.count("<small>3.00 to 3.25</small>") == 4
    assert page.count("\u22121.00") == 4


def test_text_is_escaped_and_an_introduction_is_not(tmp_path):
    chapter = Chapter(
        lead=("Long is longer.",),
        introduction=Markup("<p>good</p>"),
        findings=(Finding("<b>lead</b>", (("<i>", "&"),)),),
        sections=(Section("s", "<u>", ("<s>",)),),
    )
    source = [{"url": "https://host/a.zip?key=secret"}]
    page = page_of(Part("toy", "<h1>", chapter), config={"name": "<script>", "sources": source})
    assert "https://host/a.zip?..." in page
    assert "<p>good</p>" in page
    for raw in ("<b>", "<i>", "<u>", "<s>", "<h1><", "<script>\n</pre>"):
        assert raw not in page
    assert "&lt;b&gt;lead" in page


def test_a_figure_has_one_place_and_its_title_stays_text(tmp_path):
    chapter = Chapter(
        headline=("one",), sections=(Section("s", "S", ("Text.",), figures=("one",)),)
    )
    page = page_of(Part("toy", "Toy", chapter, (drawing(tmp_path, "one", title='A "quote"'),)))
    assert page.count("<title>one</title>") == 1
    assert 'aria-label="A &quot;quote&quot;. What one shows.' in page


def test_what_all_rows_share_selects_none(tmp_path):
    table = page_table("Lengths", COLUMNS, LENGTHS.assign(model="long"))
    chapter = Chapter(sections=(Section("rows", "All", tables=(table,)),))
    tags = Outline(page_of(Part("toy", "Toy", chapter))).tags
    assert [a["data-filter"] for tag, a in tags if tag == "select"] == ["layer"]


def test_a_figure_links_its_files_and_its_alternative_text_has_its_values(tmp_path):
    svg = (
        "<svg><text>published value</text>"
        '<rect data-of="a" data-names="captions"><title>captions: 7.12</title></rect></svg>'
    )
    caption = "Bars{published value|; stars: a paper}{hatched|; hatched: no bound}."
    figure = replace(drawing(tmp_path, "one", svg=svg), caption=caption)
    page = page_of(Part("toy", "Toy", Chapter(), (figure,), ("binding_information",)))
    assert 'aria-label="A figure. Bars; stars: a paper. Values: captions: 7.12."' in page
    assert "hatched" not in page
    hrefs = {a["href"] for tag, a in Outline(page).tags if tag == "a"}
    for path in ("figures/one.png", "figures/one.svg", "tables/binding_information.csv"):
        assert path in hrefs


def mark(row: str, quantity: str, value: object) -> str:
    title = f"cats, {row}, {quantity}: {value}"
    return f'<rect data-of="a" data-names="cats|{row}|{quantity}"><title>{title}</title></rect>'


def test_alternative_texts_say_shared_values_once_and_do_not_cut_the_headline(tmp_path):
    rows = [f"m{i:02}" for i in range(70)]
    marks = [mark(row, "entropy", 9) + mark(row, "decoded", i) for i, row in enumerate(rows)]
    figure = drawing(tmp_path, "one", svg=f"<svg>{''.join(marks)}</svg>")
    cut = page_of(Part("toy", "Toy", Chapter(), (figure,)))
    assert "Values: cats: all rows: entropy: 9; m00: decoded: 0; m01: decoded: 1; " in cut
    assert "m58: decoded: 58. And 11 more, in the table next to this page." in cut
    whole = page_of(Part("toy", "Toy", Chapter(headline=("one",)), (figure,)))
    assert 'm69: decoded: 69."' in whole


def test_a_narrow_screen_has_a_figure_of_its_own(tmp_path):
    wide = drawing(tmp_path, "wide", svg='<svg viewBox="0 0 9 9"><g id="a"/></svg>')
    both = replace(wide, narrow=wide.svg)
    page = page_of(Part("toy", "Toy", Chapter(headline=("wide",)), (both,)))
    assert page.count('<svg class="narrow" role="img"') == 1
    assert 'id="wide-a"' in page
    assert 'id="wide-n-a"' in page
    assert '<div class="drawing stacks"' in page


def test_large_vector_figures_are_embedded_as_pixels(tmp_path):
    large = drawing(tmp_path, "large", svg="x" * (LARGEST_SVG_BYTES + 1))
    page = page_of(Part("toy", "Toy", Chapter(), (large,)))
    assert "data:image/png;base64" in page
    assert "x" * 100 not in page


def test_the_job_reads_tables_figures_and_captions_of_the_studies(tmp_path):
    write_table(default_table(), tmp_path / "binding_information", BINDING_INFORMATION.schema)
    write_table(priors_table(), tmp_path / "priors", PRIORS.schema)
    tables = [
        ProductFiles({"table": name}, {"": str(tmp_path / f"{name}.parquet")})
        for name in ("binding_information", "priors")
    ]
    figures = []
    for name in ("tokens", "natural", "calibration"):  # an order of their own
        drawn = drawing(tmp_path, name)
        figures.append(ProductFiles({"figure": name}, {"": drawn.png, "svg": drawn.svg}))
    resources = {
        "binding_information": str(ROOT / "resources/published/binding_information.csv"),
        "trends": str(ROOT / "resources/published/trends.csv"),
        "histograms": str(ROOT / "resources/published/histograms.csv"),
        "color_cues": str(ROOT / "resources/reference/color_cues.csv"),
        "binding_information_introduction": str(ROOT / STUDY.resources[-1]),
        "claims": str(ROOT / "resources/reference/claims.csv"),
    }
    inputs = Inputs({"tables": tables, "figures": figures}, {"config": CONFIG}, resources)
    about = {entry.name: [entry.title, entry.caption, entry.narrow] for entry in STUDY.figures}
    chapters = [
        {
            "study": "binding_information",
            "title": "Binding information",
            "findings": STUDY.findings,
            "tables": ["binding_information"],
            "figures": {name: about[name] for name in ("calibration", "natural", "tokens")},
        },
        {
            "study": "datasets",
            "title": "Data",
            "findings": "bindscope.studies.datasets.findings:chapter",
            "tables": [],
            "figures": {},
        },
    ]
    binding, data = make_parts(chapters, inputs)
    assert [figure.name for figure in binding.figures] == ["tokens", "natural", "calibration"]
    assert binding.figures[1].title == "Binding information in natural images"
    assert data.figures == ()
    text = text_of(page_of(binding, data))
    assert "Binding information in natural images" in text
    assert "Bits per scene about the objects" in text
    assert "Entropies of the scenes" in text


def test_captions_have_at_most_60_words_and_say_what_their_intervals_cover():
    declared = {entry.name: entry for study in studies().values() for entry in study.figures}
    assert len(declared) > 35
    covered = re.compile(r"intervals? over|[Nn]o intervals|without intervals|Intervals are in")
    for name, entry in declared.items():
        caption = entry.full_caption
        assert "{" not in caption, name
        assert 20 <= len(caption.split()) <= 60, name
        assert covered.search(caption) or name == "scenes", name
        assert len(entry.title) > 5


class Visible(Outline):
    """The words outside of folded parts (but their summaries), options, drawings and scripts."""

    def handle_starttag(self, tag, attrs):
        """Note a tag that folds what is in it."""
        super().handle_starttag(tag, attrs)
        if tag == "details" and "open" not in dict(attrs):
            self.open[-1] = "folded"

    def handle_endtag(self, tag):
        """Close a tag."""
        if tag not in VOID:
            self.open.pop()

    def handle_data(self, data):
        """Note text that is seen."""
        folded = self.open.count("folded") - (self.open[-2:] == ["folded", "summary"])
        if not folded and not {"select", "svg", "script", "style", "title"} & set(self.open):
            self.text.append(data)


def test_all_but_the_result_its_numbers_and_words_folds(tmp_path):
    words = " ".join("".join(Visible(page_of(toy(tmp_path))).text).split())
    for text in (
        "Long is longer.",
        "3.1 cm",
        "bent: not straight",
        "Two are few.",
        "There are two:",
    ):
        assert text in words
    for folded in ("short, layer 2", "A point.", "3.00 to 3.25", "controlled:"):
        assert folded not in words


def test_groups_are_known_to_the_filter(tmp_path):
    config = {
        "models": [{"name": "a", "seeds": [0, 1]}, {"name": "b"}],
        "studies": {"toy": {"groups": [{"name": "both", "models": ["a", "b"]}]}, "none": None},
    }
    page = page_of(toy(tmp_path), config=config)
    assert '{"a": ["a-0", "a-1"], "both": ["a-0", "a-1", "b"]}' in page


def test_a_figure_is_inline_with_ids_of_its_own_and_its_values(tmp_path):
    svg = (
        '<?xml version="1.0"?><svg width="9pt" viewBox="0 0 9 9"><metadata>m</metadata>'
        '<defs><clipPath id="c"/></defs><g id="value-0" clip-path="url(#c)"/>'
        '<use xlink:href="#c"/><rect data-of="value-0" data-names="a"><title>3</title></rect></svg>'
    )
    page = page_of(Part("toy", "Toy", Chapter(), (drawing(tmp_path, "one", svg=svg),)))
    for text in ('id="one-value-0"', "url(#one-c)", 'href="#one-c"', 'data-of="one-value-0"'):
        assert text in page
    assert "<metadata>" not in page
    assert "<?xml" not in page


def test_numbers_have_a_real_minus_sign_and_no_negative_zero():
    assert number(-1.234) == "\u22121.23"
    assert number(-0.001) == "0.00"
    assert number(None) == number(float("nan")) == ""
    assert number(0.3049, ".0%") == "30\u00a0%"
    assert number(-0.0004, "+.1f") == "0.0"


def test_columns_without_values_are_hidden():
    frame = LENGTHS.assign(length=None, key="")
    table = page_table("Lengths", COLUMNS, frame)
    assert [column.heading for column in table.columns] == ["model", "layer"]
    assert {len(row) for row in table.rows} == {2}


def test_verdicts_stand_beside_their_intervals_and_the_weakest_impostor():
    claim = Claim("longer", "It is longer.", unit="cm")
    places = [Effect("longer", f"place {i}", 2.0, 1.5, 3.0, 50, "images") for i in range(5)]
    judgments = judge([claim], [*places, Effect("longer", "far", 0.1, -1.0, 1.0, 50, "images")])
    rates = pd.DataFrame(
        [("toy", "longer", "bent", "impostor", 3, 100)],
        columns=["study", "claim", "case", "kind", "holds", "n"],
    )
    _, table = claims_section(judgments, rates, "toy").tables
    cells = dict(zip([column.heading for column in table.columns], table.rows[0], strict=True))
    assert (cells["effect"].text, cells["effect"].below) == ("2.00", "1.50 to 3.00")
    assert cells["p"].text == "<\u00a00.001"
    assert cells["weakest impostor"].text == "bent: 3 of 100 seeds"


def test_claims_are_a_matrix_with_a_row_per_claim_and_a_column_per_model():
    claims = [
        Claim("right", "It is right.", threshold=0.5, unit="fraction"),
        Claim("longer", "It is longer.", unit="cm"),
    ]
    ends = {"holds": (0.9, 0.85, 0.95), "refuted": (0.2, 0.15, 0.25), "open": (0.5, 0.1, 0.9)}
    effects = [
        Effect(
            "right", f"{model}, {where}", *ends[kind], 50, "photos", model=model, condition=where
        )
        for model, where, kind in (
            ("a", "left", "holds"),
            ("a", "above", "open"),
            ("b", "left", "refuted"),
            ("b", "left", "holds"),
        )
    ]
    effects.append(Effect("longer", "b", *ends["holds"], 50, "photos", "empty edit"))
    rates = pd.DataFrame(columns=["study", "claim", "case", "kind", "holds", "n"])
    section = claims_section(judge(claims, effects), rates, "toy")
    matrix, _ = section.tables
    assert [column.heading for column in matrix.columns] == ["claim", "for", "b", "a"]
    assert [[cell.text for cell in row] for row in matrix.rows] == [
        ["It is right.", "left", "\u2717 \u2713", "\u2713"],
        ["", "above", "", "?"],
        ["It is longer.", "", "\u2013", ""],
    ]
    cell = matrix.rows[0][3]
    assert (cell.below, cell.explanation) == ("90 %", "holds: a, left, 90 %, 85 to 95")
    assert matrix.rows[2][2].explanation == "not testable: b, 0.90 cm, 0.85 to 0.95, empty edit"
    assert matrix.rows[2][0].below == "effects in cm"
    assert section.points == ()
    assert section.paragraphs == (f"{section.summary} Claims do not hold for b (1 effect).",)
    without = claims_section(judge(claims, effects), rates, "toy", without=["b"])
    assert without.paragraphs == (section.summary,)
    assert section.summary == (
        "5 effects tested, corrected for all of them (Holm): "
        "2 hold, 1 does not hold, 1 not significant, 1 not testable."
    )
    page = page_of(Part("toy", "Toy", Chapter(lead=("It is so.",), sections=(section,))))
    assert f'<a href="#toy-claims">{section.summary}</a>' in page
    assert 'title="holds: a, left, 90 %, 85 to 95"' in page
    assert '<details class="section" id="toy-claims" open>' in page
    assert page.count('<tr class="group">') == 2
    assert '<th scope="col"><span>claim' not in page
    assert page.count(">It is right.") == 1


def test_a_narrow_page_scrolls_figures_and_tables_and_has_no_small_text(page):
    style = page[page.index("<style>") : page.index("</style>")]
    sizes = [float(size) * 16 for size in re.findall(r"font-size: ([\d.]+)rem", style)]
    assert min(sizes) >= 12
    assert re.search(r"\.scroll {[^}]*overflow: auto", style)
    assert re.search(r"\.drawing {[^}]*overflow-x: auto", style)
