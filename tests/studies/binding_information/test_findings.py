"""The chapter on binding information says what the table says, and what is doubtful about it."""

import re

import numpy as np
import pytest
from binding_chapters import chapter_of
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_tables import (
    default_table,
    known_rows,
    make_row,
    make_table,
    paper_table,
    vit_rows,
)
from zoo_tables import CONFIG as ZOO
from zoo_tables import parts_row, parts_table, zoo_rows, zoo_table

from bindscope.statistics.means import mean_interval, welch_interval
from bindscope.studies.binding_information import findings, sentences
from bindscope.studies.binding_information.claims import DECODED, MORE
from bindscope.studies.binding_information.quantities import EVIDENCE, PAIRING
from bindscope.studies.binding_information.sentences import gather, probe_words
from bindscope.tables.numbers import at_least, at_most

# Rows of the last layers of the first dataset alone.
SMALL = [
    row
    for row in zoo_rows()
    if row["dataset"] == "matching"
    and row["layer"] == "4"
    and row["probe"] == "best"
    and row["model"].rpartition("-")[0] in ("objects", "features", "none")
]


def section(binding_chapter, name):
    """Return one of a chapter's sections."""
    return next(section for section in binding_chapter.sections if section.name == name)


def text_of(findings):
    """Return the text of findings, with plain spaces."""
    parts = [f.lead + " ".join(name + text for name, text in f.points) for f in findings]
    return " ".join(parts).replace("\u00a0", " ")


def about(table, config=ZOO):
    """Gather what the sentences are made from."""
    return gather(table, config)


def all_sentences(table, config=ZOO):
    """Return every sentence that quotes, with plain spaces."""
    facts = about(table, config)
    numbers = [f"{n.value} {n.unit} {n.label}" for n in sentences.key_numbers(facts)]
    texts = [*sentences.lead(facts), *numbers, text_of(sentences.findings(facts))]
    return [text.replace("\u00a0", " ") for text in texts]


def test_the_lead_compares_what_differs_in_the_pairing_alone_with_the_verdict():
    lead, others, patches = (
        sentence.replace("\u00a0", " ") for sentence in chapter_of(zoo_table(), ZOO).lead
    )
    assert lead == (
        "From the [CLS] token, a linear probe decodes ≥ 7.74 of 9.49 bits of pairing (which color "
        "belongs to which shape) from 3 vision transformers trained on captions that pair the "
        "words (captions), and ≥ 5.49 from 3 vision transformers trained on captions of the same "
        "words, unpaired (captions-unpaired): no significant difference (scenes of matching, last "
        "layer)."
    )
    assert others.startswith("Other models: ≥ 1.60 (features), ")
    control = "positive control, trained to predict the objects linearly from [CLS]: ≥ 9.4"
    assert control in others
    assert re.search(
        r"Of 15 comparisons over training seeds, \d are significant: captions over", others
    )
    assert patches.startswith("Bits of pairing decoded from the patch tokens by a set probe: ≥ ")


def test_the_headline_says_more_only_by_a_verdict_and_never_of_a_positive_control():
    apart = [
        row | {PAIRING.value: row[PAIRING.value] + 1.0 * row["model"].startswith("none")}
        for row in zoo_rows()
        if row["model"].rpartition("-")[0] in ("objects", "features", "none")
    ]
    facts = about(make_table(apart))
    lead, others = (text.replace("\u00a0", " ") for text in sentences.lead(facts)[:2])
    assert "from 3 vision transformers not trained (none), and ≥ 1.60 from" in lead
    assert "significantly more (p < 0.001, over training seeds)" in lead
    assert "objects" not in lead.replace("classify the objects", "")
    assert others.startswith("Positive control, trained to predict the objects linearly from")
    compared = {name for pair in judged(facts, MORE) for name in pair.effect.about[3:]}
    assert compared == {"features", "none"}
    numbers = sentences.key_numbers(facts)
    assert "; against features: significantly more (p < 0.001" in numbers[2].label.replace(
        "\u00a0", " "
    )
    assert [n.label for n in numbers if "objects" in n.label][1:] == [
        "pairing decoded by a linear probe from the [CLS] token of objects (positive control), 3 "
        "training seeds"
    ]
    equal = [
        row | {PAIRING.value: 3.0 + int(row["model"][-1]) - 0.1 * row["model"].startswith("none")}
        for row in apart
    ]
    lead = sentences.lead(about(make_table(equal)))[0]
    assert "no significant difference" in lead
    assert "significantly" not in lead


def test_of_positive_controls_only_the_lead_says_what_is_decoded_from_what():
    rows = [row for row in zoo_rows() if row["model"].startswith("objects")]
    texts = [text.replace("\u00a0", " ") for text in sentences.lead(about(make_table(rows)))]
    control = "positive control, trained to predict the objects linearly from [CLS]: ≥ 9.4"
    begin = "Bits of pairing decoded from the [CLS] token by a linear probe: "
    assert texts[0].startswith(begin + control)
    assert not any("decodes positive" in text for text in texts)


def test_a_groups_name_stands_for_all_of_its_seeds_or_not_at_all():
    rows = [row for row in SMALL if row["model"] not in ("none-1", "none-2")]
    facts = about(parts_table([row for row in rows if row["tokens"] == "cls"]))
    assert set(facts.quoted.rows["model"]) == {"features", "none-0", "objects"}
    text = " ".join(all_sentences(parts_table(rows)))
    assert not re.search(r"\bnone\b(?!-)(?! is)", text)
    assert "none-0 (a vision transformer not trained, one training seed): ≥" in text
    # Read, but not quotable: one seed that is left has its own name too.
    bad = [
        row | {"flags": "diverged"} if row["model"] in ("features-1", "features-2") else row
        for row in SMALL
    ]
    assert "features-0" in set(about(parts_table(bad)).quoted.rows["model"])


def test_models_of_a_group_are_compared_with_the_probes_that_all_of_them_have():
    """One seed has a second probe that decodes 2 bits more, as has its best row."""
    rows = [row for row in zoo_rows() if row["dataset"] == "matching" and row["layer"] == "4"]
    rows = [row for row in rows if row["tokens"] == "cls"]
    rows = [row for row in rows if row["model"].startswith(("features", "none"))]
    fits = {row["model"]: row for row in rows if row["probe"] == "linear"}
    richer = {"options": '{"family": "quadratic"}', "val_loss_chained_object_bits": 1.0}
    for name in PAIRING.interval:
        richer[name] = fits["features-0"][name] + 2.0
    for row in rows:
        if row["model"] == "features-0" and row["probe"] == "best":
            row |= richer
    second = fits["features-0"] | richer | {"probe": "quadratic"}
    facts = about(make_table([*rows, second]))
    quoted = facts.quoted.rows.set_index("model")
    bests = {row["model"]: row[PAIRING.value] for row in rows if row["probe"] == "best"}
    each = [fits["features-0"][PAIRING.value], bests["features-1"], bests["features-2"]]
    assert quoted.loc["features", PAIRING.value] == pytest.approx(np.mean(each))
    assert set(quoted["fitted"]) == {"linear"}
    assert probe_words(facts.quoted) == "a linear probe"
    assert "best" not in " ".join(sentences.lead(facts))
    alone = about(make_table([row for row in [*rows, second] if row["model"] == "features-0"]))
    assert probe_words(alone.quoted) == "the best of a linear probe and a quadratic probe"
    assert alone.quoted.rows[PAIRING.value].item() == pytest.approx(richer[PAIRING.value])


def test_the_findings_say_what_the_table_says():
    table = zoo_table()
    binding_chapter = chapter_of(table, ZOO)
    rows = table[(table["dataset"] == "counting") & (table["layer"] == "4")]
    rows = rows[rows["model"].str.startswith("masked") & (rows["probe"] == "best")]
    rows = rows[rows["tokens"] == "cls"]
    assert len(rows) == 3
    mean, low, high = mean_interval(rows["pairing_lower_bound_bits"])
    text = text_of(binding_chapter.findings)
    assert (
        "masked (3 vision transformers trained to predict masked patches): "
        f"≥ {at_least(mean)} ({at_least(low)} to {at_most(high)}) from the [CLS] token; ≥ "
    ) in text
    assert "7.22 for features, 11.29 for counts and 7.98 for pairing" in text
    assert "9.61 for features and 9.49 for pairing" in text
    assert "left out" not in text
    assert binding_chapter.notes == ()
    assert binding_chapter.headline == ("parts",)
    assert binding_chapter.findings[0].lead.startswith(
        "The objects of a scene of matching have 19.11 bits of entropy"
    )
    assert "binding</em>" in binding_chapter.introduction


@pytest.mark.parametrize("flags", ["", "above_prior;collapsed"])
@given(data=st.data())
@settings(max_examples=4, deadline=None, derandomize=True)
def test_no_sentence_quotes_a_row_that_may_not_be_quoted(flags, data):
    """Flagged rows hold numbers that would be seen: 7777 bits."""
    rows = [row | {"n_train": 100} for row in SMALL]
    hidden = data.draw(st.sets(st.integers(0, len(rows) - 1), max_size=len(rows)))
    for i in hidden:
        rows[i] = rows[i] | {"flags": flags or "above_prior"}
        if flags:
            rows[i] |= {name: 7777.0 for name in rows[i] if "lower_bound_bits" in name}
    texts = all_sentences(make_table(rows))
    assert not any("777" in text for text in texts)
    for text in texts:
        assert not re.search(r"\bno binding\b|\bnothing\b|\bnone of\b", text)
        for amount in re.findall(
            r"(\S+) [-\u2212]?\d+\.\d+ (?:\(.{,30}\) )?(?:of \d|in|from)", text
        ):
            assert amount == "≥"
    hidden_flags = {rows[i]["flags"] for i in hidden} if flags else set()
    if hidden_flags:
        flag = flags.rpartition(";")[2]
        assert any(f"flagged {flag}" in text for text in texts)
        assert "above_prior" not in " ".join(texts)


def test_bounds_are_rounded_down_and_their_intervals_outwards():
    assert [at_least(x) for x in (9.479, 9.5, 0.004, -0.004, 9.6 - 1e-9)] == [
        "9.47",
        "9.50",
        "0.00",
        "\u22120.01",
        "9.60",
    ]
    assert at_least(99.9, 0) == "99"
    assert [at_most(x) for x in (9.481, 9.4, -0.004)] == ["9.49", "9.40", "0.00"]


def as_number(text):
    return float(text.replace("\u2212", "-"))


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=3), st.integers(0, 3))
@settings(deadline=None, derandomize=True)
def test_what_is_inside_its_interval_is_written_inside_it(values, decimals):
    """A bound of 9.4797 with an interval of 9.4785 to 9.4810 is not "9.4 (9.5 to 9.5)"."""
    low, value, high = sorted(values)
    printed_low, printed = (as_number(at_least(x, decimals)) for x in (low, value))
    printed_high = as_number(at_most(high, decimals))
    assert printed_low <= printed <= printed_high
    assert printed_low <= low + 1e-5
    assert high <= printed_high + 1e-5


NUMBER = r"([-\u2212]?\d+\.\d+)"
INTERVAL = re.compile(rf"(?:≥|difference of) {NUMBER}(?: bits)? \({NUMBER} to {NUMBER}")


@pytest.mark.parametrize("spread", [1e-4, 1e-3, 1e-2, 0.1, 1.0])
def test_every_number_that_is_said_is_in_the_interval_that_is_said(spread):
    """However little the training seeds differ."""
    rng = np.random.default_rng(0)
    rows = [
        row | {PAIRING.value: 9.48 + (row["model"] == "none-0") + spread * rng.normal()}
        for row in SMALL
    ]
    quoted = " ".join(all_sentences(make_table(rows)))
    intervals = INTERVAL.findall(quoted)
    assert len(intervals) >= 6
    for value, low, high in intervals:
        assert as_number(low) <= as_number(value) <= as_number(high)
        assert len({len(text.partition(".")[2]) for text in (value, low, high)}) == 1


def judged(facts, claim):
    return [judgment for judgment in facts.judgments if judgment.claim.name == claim]


def test_groups_are_compared_by_what_one_probe_decodes_over_training_seeds():
    facts = about(zoo_table())
    pairs = [
        pair for pair in judged(facts, MORE) if pair.effect.where.startswith("matching, [CLS]")
    ]
    assert len(pairs) == 15  # of six groups: a positive control is compared with none
    by_names = {
        tuple(re.findall(r"(\S+) \(≥", pair.effect.where.replace("\u00a0", " "))): pair
        for pair in pairs
    }
    single = facts.quoted.single
    single = single[(single["dataset"] == "matching") & (single["tokens"] == "cls")]
    for names, judgment in by_names.items():
        values = [single[single["group"] == name][PAIRING.value] for name in names]
        effect = judgment.effect
        assert [effect.value, effect.low, effect.high] == pytest.approx([*welch_interval(*values)])
        assert (effect.n, effect.resampled) == (6, "training seeds")
        assert judgment.verdict in ("holds", "not significant")
        assert (judgment.verdict == "holds") <= (effect.low > 0)
        assert "a linear probe: " in effect.where
    assert by_names["captions", "features"].verdict == "holds"
    assert by_names["none", "self-distillation"].verdict == "not significant"
    assert "difference of what they hold" not in text_of(sentences.findings(facts))


def test_one_network_is_judged_by_its_test_scenes_and_not_compared():
    rows = [row for row in SMALL if row["tokens"] == "cls"]
    rows = [row for row in rows if row["model"] not in ("none-1", "none-2")]
    facts = about(parts_table(rows))
    decoded = {judgment.effect.where: judgment for judgment in judged(facts, DECODED)}
    effect = decoded["matching, [CLS], none-0, a linear probe"].effect
    assert effect.resampled == "test scenes"
    assert effect.n > 100
    control = decoded["matching, [CLS], objects (positive control), a linear probe"]
    assert control.effect.resampled == "training seeds"
    # The rows of fits, not those of the best probe, are compared.
    single = parts_table([row | {"probe": "linear"} for row in rows])
    reasons = {
        judgment.reason
        for judgment in judged(about(single), MORE)
        if judgment.verdict == "not testable"
    }
    assert reasons == {"one training seed of none-0"}


def test_a_part_that_is_the_prior_is_not_testable():
    row = parts_row("matching", "mine", decoded=(9.0, 0.0, 0.0))
    row |= {f"{PAIRING.value}{end}": 0.0 for end in ("", "_low", "_high")} | {EVIDENCE: 0.0}
    (judgment,) = judged(about(make_table([row]), {}), DECODED)
    assert (judgment.verdict, judgment.reason) == ("not testable", "validation prefers the prior")


@pytest.mark.parametrize(
    ("evidence", "verdict"), [(5.4, "holds"), (5.3, "not significant"), (-90.0, "not significant")]
)
def test_one_network_is_judged_by_its_evidence_and_not_by_its_interval(evidence, verdict):
    row = parts_row("matching", "mine", decoded=(9.0, 0.0, 1.0)) | {EVIDENCE: evidence}
    (judgment,) = judged(about(make_table([row]), {}), DECODED)
    assert judgment.verdict == verdict
    assert judgment.p_value == pytest.approx(min(1.0, 2.0**-evidence))


def test_a_fit_that_has_not_converged_is_neither_quoted_nor_judged():
    table = zoo_table()
    table["flags"] = "not_converged"
    facts = about(table)
    text = text_of(sentences.findings(facts))
    assert "no row to quote" in text
    assert "flagged not_converged" in text
    assert judged(facts, MORE) == []


def test_models_in_no_group_are_not_compared():
    config = ZOO | {"studies": {}}
    facts = about(zoo_table(), config)
    assert judged(facts, MORE) == []
    assert any("fewer than three training seeds" in text for text in sentences.caveats(facts))


def test_as_many_networks_are_told_of_as_were_read():
    rows = [row for row in SMALL if row["tokens"] == "cls" or row["model"] == "objects-0"]
    facts = about(parts_table([row for row in rows if row["model"] not in ("none-1", "none-2")]))
    text = text_of(sentences.findings(facts))
    assert "objects (positive control: 3 vision transformers trained to classify the" in text
    assert "objects-0 (positive control: a vision transformer trained to classify the" in text
    assert "none-0 (a vision transformer not trained, one training seed): ≥" in text


def test_an_assumed_prior_makes_no_bounds():
    table = zoo_table()
    table["flags"] = "assumed_prior"
    texts = all_sentences(table)
    assert "the distribution of these scenes is not known" in texts[-1]
    assert "about" in texts[0]
    assert not any("≥" in text for text in texts)


def test_calibration_counts_what_is_above_the_truth():
    text = " ".join(findings.calibration(default_table()))
    assert text.startswith("18 fits")
    assert "6 planted encoders" in text
    assert "No lower bound is above the truth" in text
    assert "above the truth by more than 0.1 bits in 4 of 18 fits, by 7.43 bits at most" in text
    rows = known_rows()
    rows[0] |= {
        "binding_lower_bound_bits": 3.0,
        "binding_lower_bound_bits_low": 2.9,
        "binding_lower_bound_bits_high": 3.1,
    }
    table = make_table(rows)
    assert "In 1 of them a lower bound is above the truth" in " ".join(findings.calibration(table))
    assert any("above_truth" in warned.what for warned in findings.warnings(table))
    assert findings.calibration(make_table(vit_rows())) == []


def test_flags_failures_and_controls_are_told():
    rows = [make_row(flags="collapsed;not_converged"), make_row("other")]
    lost = ("binding_bits", "binding_ratio", "binding_bits_low", "binding_bits_high")
    rows[1] |= dict.fromkeys(lost) | {"status": "failed", "reason": "the loss is infinite"}
    rows.append(make_row(control="shuffled_labels"))
    binding_chapter = chapter_of(make_table(rows))
    warned = {w.what.partition(":")[0]: w.rows for w in binding_chapter.warnings}
    named = "colorshape, other, layer 4, cls, quadratic, seed 0: the loss is infinite"
    assert warned["failed"] == (named,)
    assert set(warned) == {"failed", "collapsed", "not_converged"}
    trust = section(binding_chapter, "trust")
    assert trust.paragraphs[0].startswith("1 control fit ")
    assert trust.figures == ("calibration",)
    assert chapter_of(default_table()).warnings == ()


def test_flags_of_controls_and_planted_encoders_are_no_alarm():
    rows = [make_row(flags="prior", control="shuffled_labels"), known_rows()[0]]
    rows[1] |= {"flags": "above_prior;prior"}
    quiet = chapter_of(make_table(rows))
    assert quiet.warnings == ()
    expected = "2 rows of controls, planted encoders or baselines are flagged, as expected."
    assert expected in section(quiet, "trust").paragraphs
    rows[1] |= {"flags": "above_truth"}
    (warned,) = chapter_of(make_table(rows)).warnings
    assert warned.what.startswith("above_truth")


def test_the_papers_numbers_stand_beside_ours_or_it_is_said_why():
    published = section(chapter_of(paper_table()), "published")
    beside = published.tables[0]
    cells = [[cell.text for cell in row] for row in beside.rows]
    assert [
        "balanced-colorshape",
        "dinov2-large",
        "cls",
        "quadratic",
        "loss_object_bits",
        "22",
        "21.7",
        "3",
        "other",
        "arXiv 2606.03976, Table 3",
    ] in cells
    none = section(chapter_of(default_table()), "published")
    assert none.paragraphs[1].startswith("No value of this run is comparable")
    facts = about(zoo_table())
    (here,) = sentences.counts_reach(facts)
    assert section(chapter_of(zoo_table(), ZOO), "published").paragraphs[1] == here
    # 11.29 of 19.27 bits, exactly.
    assert here == "In scenes of counting, counts alone reach 59\u00a0% of B*."
    assert [table.title.split()[0] for table in none.tables] == ["Further"]
    assert none.tables[0].folded


def test_where_every_row_is_flagged_the_flag_is_said_and_no_number():
    table = parts_table([row | {"flags": "diverged"} for row in SMALL])
    facts = about(table)
    assert sentences.lead(facts) == ()
    assert sentences.key_numbers(facts) == []
    assert sentences.counts_reach(facts) == []
    text = text_of(sentences.findings(facts))
    assert "there is no row to quote from the [CLS] token (3 models left out, flagged" in text
    assert "≥" not in text


def test_a_small_bound_is_a_number_and_not_an_absence():
    table = parts_table([parts_row("matching", "mine", decoded=(9.0, 0.0, 0.004))])
    text = text_of(sentences.findings(about(table, {})))
    assert "≥ 0.00 from the [CLS] token" in text
    assert "Bits of pairing decoded from the last layers by a linear probe ([CLS]):" in text


def test_counts_that_are_not_told_apart_are_said_to_be_together():
    row = parts_row("counting", "mine", decoded=(5.0, 2.0, 3.0), counted=False)
    facts = about(parts_table([row]), {})
    text = text_of(sentences.findings(facts))
    assert "≥ 5.00 from the [CLS] token" in text
    assert "Counts and pairing are not separated here" in text
    assert "19.27 bits of counts and pairing" in sentences.lead(facts)[0]
