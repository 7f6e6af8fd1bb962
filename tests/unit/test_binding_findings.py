"""The chapter on binding information says what the table says, and what is doubtful about it."""

from pathlib import Path

import pytest
import yaml
from sample_tables import (
    default_table,
    known_rows,
    make_row,
    make_table,
    paper_table,
    vit_rows,
)

from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_information import sentences
from bindscope.studies.binding_information.findings import LABELS, NUMBERS, chapter
from bindscope.studies.binding_information.study import STUDY

ROOT = Path(__file__).parents[2]
CONFIG = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
RESOURCES = {
    "binding_information": str(ROOT / "resources/published/binding_information.csv"),
    "trends": str(ROOT / "resources/published/trends.csv"),
    "binding_information_introduction": str(ROOT / STUDY.resources[-1]),
}
NAMES = [model["name"] for model in CONFIG["models"]]


def chapter_of(table, config=CONFIG):
    """Make the chapter out of a table."""
    return chapter({"binding_information": table}, Inputs(content=config, resources=RESOURCES))


def section(made, name):
    """Return one of a chapter's sections."""
    return next(section for section in made.sections if section.name == name)


def text_of(found):
    """Return the text of findings, with plain spaces."""
    parts = [f.lead + " ".join(name + text for name, text in f.points) for f in found]
    return " ".join(parts).replace("\u00a0", " ")


def spoken(**changes):
    """Return the finding on a single row."""
    return text_of(sentences.findings(make_table([make_row(**changes)]), CONFIG))


def test_the_findings_say_what_the_table_says():
    table = default_table()
    made = chapter_of(table)
    row = table[(table["model"] == "vit-objects") & (table["layer"] == "4")]
    row = row[(row["tokens"] == "cls") & (row["probe"] == "quadratic")].iloc[0]
    whole = sentences.bits(row["binding_lower_bound_bits"])
    part = sentences.bits(row["conditional_binding_lower_bound_bits"])
    share = row["conditional_binding_lower_bound_bits"] / row["h_object_given_feature_bits"]
    text = text_of(made.findings)
    assert f"reads ≥ {whole} of the 26.5 bits about the objects" in text
    assert f"and ≥ {part} of the 19.3 bits of binding (≥ {share:.0%}".replace("%", " %") in text
    assert "vit-objects (a vision transformer trained to name the objects): from" in text
    assert "(an untrained vision transformer)" in text
    assert "flagged" not in text
    assert "trained with 1 seed. That is too few" in " ".join(made.notes)
    values = [number.value.replace("\u00a0", " ") for number in made.key_numbers]
    assert values[:2] == ["26.5", "19.3"]
    assert f"≥ {part}" in values
    assert made.headline == ("tokens",)
    assert "binding</em>" in made.introduction


def test_a_small_bound_is_a_number_and_not_an_absence():
    text = spoken(loss_given=19.271)
    assert "≥ 0.0 of the 19.3 bits of binding (≥ 0 %)" in text
    assert "no binding" not in text
    text = spoken(loss_given=20.271)
    assert "≥ \u22121.0 of the 19.3 bits" in text


@pytest.mark.parametrize("flag", ["collapsed", "diverged", "not_converged"])
def test_what_is_quoted_of_a_flagged_fit_is_quoted_with_the_flag(flag):
    rows = [make_row(seed=0), make_row(seed=1, flags=flag), make_row(tokens="mean", flags=flag)]
    table = make_table(rows)
    text = text_of(sentences.findings(table, CONFIG))
    assert f"This fit is flagged {flag}" in text
    assert f"the mean of the patch tokens (a quadratic probe, flagged {flag})" in text
    assert sentences.key_numbers(table, NAMES)[2].label.endswith(f"vit-objects (flagged {flag})")
    assert "flagged" not in text_of(sentences.findings(make_table(rows[:1]), CONFIG))


def test_new_families_tokens_objectives_and_flags_are_shown_by_their_names():
    table = make_table([make_row(model="mine", layer="4"), make_row(probe="quadratic")])
    table["options"] = '{"family": "cubic"}'
    table.loc[0, "tokens"] = "corners"
    table["flags"] = "odd"
    config = {"models": [{"name": "mine", "source": "controlled:rotation"}]}
    text = text_of(sentences.findings(table, config))
    assert "cubic" in text
    assert "corners" in text
    assert "trained with the objective rotation" in text
    assert [warned.what for warned in sentences.warnings(table)] == ["odd"]
    assert len(chapter_of(table, config).key_numbers) == 4


def test_what_a_model_is_comes_from_its_source():
    table = make_table([make_row(model="a"), make_row(model="b")])
    sources = [{"name": "a", "source": f"hf:facebook/dinov2-large@{40 * 'a'}"},
               {"name": "b", "source": "timm:path:/home/me"}]  # fmt: skip
    text = text_of(sentences.findings(table, {"models": sources}))
    assert "a (facebook/dinov2-large): from" in text
    assert "b: from" in text
    assert "/home/me" not in text


def test_nothing_to_bind_has_no_share():
    rows = [make_row(h=(7.0, 7.0), loss_object=3.0, loss_feature=3.0, loss_given=0.0)]
    table = make_table([row | {"reason": "H(O|F) is 0", "status": "undefined"} for row in rows])
    text = text_of(sentences.findings(table, CONFIG))
    assert "≥ 0.0 of the 0.0 bits of binding." in text
    assert "%" not in text


def test_an_assumed_prior_makes_no_bounds():
    table = default_table()
    table["flags"] = "assumed_prior"
    text = text_of(sentences.findings(table, CONFIG))
    assert "the distribution of these scenes is not known" in text
    assert "reads about" in text
    assert "≥" not in text
    numbers = sentences.key_numbers(table, ["vit-objects"])
    assert all(number.value.startswith("about ") for number in numbers)
    what = [warned.what for warned in chapter_of(table).warnings]
    assert any(words.startswith("assumed_prior: the distribution") for words in what)


def test_three_training_seeds_are_enough_for_a_claim():
    models = [
        {"name": f"{objective}-{seed}", "source": f"controlled:{objective}", "seed": seed}
        for objective in ("objects", "features")
        for seed in (0, 1, 2)
    ]
    table = make_table([make_row(model["name"]) for model in models])
    assert sentences.seed_note(table, {"models": models}) == []
    assert "2 seeds" in sentences.seed_note(table, {"models": models[:2] + models[3:5]})[0]


def test_the_quoted_probe_is_fixed_and_not_the_best():
    rows = [make_row(probe="dnn", loss_object=5.0, loss_given=3.0), make_row(probe="quadratic")]
    chosen = sentences.quoted_rows(make_table(rows), [])
    assert list(chosen["family"]) == ["quadratic"]


def test_calibration_counts_what_is_above_the_truth():
    text = " ".join(sentences.calibration(default_table()))
    assert text.startswith("18 fits")
    assert "6 encoders" in text
    assert "No lower bound is above the truth" in text
    assert "above the truth by more than 0.1 bits in 4 of 18 fits, by 7.4 bits at most" in text
    rows = known_rows()
    rows[0] |= {
        "binding_lower_bound_bits": 3.0,
        "binding_lower_bound_bits_low": 2.9,
        "binding_lower_bound_bits_high": 3.1,
    }
    table = make_table(rows)
    assert "In 1 of them a lower bound is above the truth" in " ".join(sentences.calibration(table))
    assert any("above_truth" in warned.what for warned in sentences.warnings(table))
    assert sentences.calibration(make_table(vit_rows())) == []


def test_flags_failures_and_controls_are_told():
    rows = [make_row(flags="collapsed;not_converged"), make_row("other")]
    lost = ("binding_bits", "binding_ratio", "binding_bits_low", "binding_bits_high")
    rows[1] |= dict.fromkeys(lost) | {"status": "failed", "reason": "the loss is infinite"}
    rows.append(make_row(control="shuffled_labels"))
    made = chapter_of(make_table(rows))
    warned = {w.what.partition(":")[0]: w.rows for w in made.warnings}
    named = "colorshape, other, layer 4, cls, quadratic, seed 0: the loss is infinite"
    assert warned["failed"] == (named,)
    assert set(warned) == {"failed", "collapsed", "not_converged"}
    trust = section(made, "trust")
    assert "In 1 control fit" in trust.paragraphs[0]
    assert trust.figures == ("calibration",)
    assert chapter_of(default_table()).warnings == ()


def test_the_papers_numbers_stand_beside_ours_or_it_is_said_why():
    published = section(chapter_of(paper_table()), "published")
    beside = published.tables[0]
    found = [[cell.text for cell in row] for row in beside.rows]
    assert ["balanced-colorshape", "dinov2-large", "cls", "quadratic", "loss_object_bits",
            "22", "21.7", "3", "arXiv 2606.03976, Table 3"] in found  # fmt: skip
    none = section(chapter_of(default_table()), "published")
    assert none.paragraphs[0].startswith("No number of this run can be compared")
    assert "this run has no dataset of that name" in " ".join(none.points)
    assert [table.title.split()[0] for table in none.tables] == ["Further"]
    assert none.tables[0].folded


def test_all_rows_are_listed_with_intervals_and_warnings():
    table = default_table()
    rows = section(chapter_of(table), "rows").tables[0]
    assert len(rows.rows) == len(table)
    assert [heading for _, heading, _ in rows.choices] == list(LABELS)
    assert len(rows.columns) == len(LABELS) + 1 + len(NUMBERS) + 1
    headings = [column.heading for column in rows.columns]
    cell = rows.rows[0][headings.index("B*, bound")]
    value = table["conditional_binding_lower_bound_bits"].iloc[0]
    assert cell.value == repr(float(value))
    assert " to " in cell.below
    flagged = chapter_of(make_table([make_row(flags="collapsed")]))
    assert section(flagged, "rows").tables[0].rows[0][-1].text == "collapsed"


def test_provenance_has_a_line_per_fit():
    made = chapter_of(make_table([make_row(seed=seed) for seed in (0, 1)] + [make_row("other")]))
    (keys,) = made.provenance
    assert keys.title == "Keys of the 2 fits"
    assert keys.folded
    assert sorted(row[len(LABELS)].text for row in keys.rows) == ["0", "0, 1"]


def test_a_run_of_known_answers_only_has_a_chapter():
    made = chapter_of(make_table(known_rows()))
    assert made.findings == made.key_numbers == ()
    assert made.notes[0].startswith("No model other than known-answer encoders was measured.")
    empty = chapter_of(default_table().iloc[:0], config={})
    assert empty.provenance == ()
