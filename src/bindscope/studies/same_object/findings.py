"""What the report says about the study: verdicts on its claims, numbers, caveats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import (
    Chapter,
    Column,
    Finding,
    KeyNumber,
    PageTable,
    Section,
    Warned,
    page_table,
)
from bindscope.report.claims import claims_section, read_rates
from bindscope.statistics.claims import Judgment, judge
from bindscope.studies.same_object.claims import (
    CLAIMS,
    EDITS_TABLE,
    OVER,
    QUADRATIC,
    WITH_POSITION_OVER,
    JudgedPlace,
    edit_effects,
    probe_effects,
)
from bindscope.studies.same_object.protocol import comparable
from bindscope.studies.same_object.published import published_next_to, read_comparison
from bindscope.studies.same_object.scores import LEADS, PAIRS
from bindscope.studies.same_object.views import (
    VALUE_ENDS,
    at_best_layers,
    best_layers,
    of_tokens,
    percent_words,
    quote,
    rivals_of,
    without_loss,
)
from bindscope.tables.numbers import number
from bindscope.tables.quoted import Quoted

_LABELS = ("dataset", "model", "layer", "probe")


NUMBERS = tuple(
    Column(each.heading, each.value, "number", each.meaning, each.format, bool(each.low))
    for each in (*PAIRS, *LEADS)
    if each.heading
)
_INTRODUCTION = (
    "A probe receives two patch tokens of an image and predicts whether both patches are of the "
    "same object (IsSameObject, arXiv 2510.24709). All probes and models of a patch grid are "
    "measured on the same pairs. Most pairs are of two objects, and neighboring patches are mostly "
    "of one, so accuracy is shown next to four references: the majority class, the majority class "
    "of each image, a probe of positions only, and a probe of both classes, positions and the "
    "image. Decisions use Platt's map of the validation split; probes fitted as in the released "
    "code use the sign of the logit."
)
_LISTED = 6  # models in words; the table has all
_BY_MODEL = (
    "The quadratic probe classifies these fractions of patch pairs correctly, at the layer with "
    "the lowest validation loss; its rivals there follow. Intervals are 95 %, over training seeds "
    "for groups, else over test images."
)
_CLAIMS_LEAD = (
    "Each gain is in percentage points of accuracy, at the layer with the lowest validation loss. "
    "It is the least certain one of the gain over the rival and the gain over the majority class "
    "of each image. A vector that is constant in an image cannot exceed the latter."
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what was found; see `core.interfaces.Findings`."""
    section = (inputs.content.get("studies") or {}).get("same_object") or {}
    table = tables["same_object"]
    quoted = quote(table, section.get("groups") or ())
    edits = tables.get(EDITS_TABLE, pd.DataFrame())
    of_edits = edit_effects(edits) if len(edits) else []
    judgments = judge(CLAIMS, [*probe_effects(quoted), *of_edits])
    rates = read_rates(inputs.resources["claims"])
    best = at_best_layers(quoted.where(family=QUADRATIC))
    best = best.sort_values("accuracy", ascending=False, kind="stable")
    lead, key_numbers = _best_of_all(quoted, best, judgments)
    return Chapter(
        lead=tuple(lead),
        headline=("same_object_layers", "same_object_models"),
        caveats=_caveats(judgments),
        introduction=Markup("<p>{}</p>").format(_INTRODUCTION),
        warnings=tuple(_warnings(table)),
        key_numbers=tuple(key_numbers),
        findings=(*_by_model(quoted, best), *_missing_losses(edits)),
        notes=(*_notes(of_tokens(quoted).rows), *_note_skipped(table)),
        sections=(
            claims_section(judgments, rates, "same_object", _CLAIMS_LEAD),
            *_geometry(tables.get(_GEOMETRY, pd.DataFrame()), quoted),
            *_edits(edits),
            *_published(quoted, inputs, section),
            Section("pairs", "All measurements", (), tables=(_rows(table),)),
        ),
    )


def _caveats(judgments: list[Judgment]) -> tuple[str, ...]:
    """Say what changes how accuracies are read: rivals, positions, seeds."""
    sentences = []
    for name in (OVER["class_position"], WITH_POSITION_OVER):
        about = [judgment for judgment in judgments if judgment.claim.name == name]
        if about:
            n_holding = sum(judgment.verdict == "holds" for judgment in about)
            sentence = about[0].claim.sentence.rstrip(".")
            sentences.append(f"{sentence}: holds in {n_holding} of {len(about)} cases.")
    sentences.append(
        "Neighboring patches mostly belong to one object: compare with the probe of positions and "
        "with the majority class of each image."
    )
    return tuple(sentences)


_RIVAL_WORDS = {
    "class_position": "both classes, positions and the image",
    "position": "positions only",
}


def _best_of_all(
    quoted: Quoted, best: pd.DataFrame, judgments: Sequence[Judgment]
) -> tuple[list[str], list[KeyNumber]]:
    """Return the leading sentence, and the key numbers: of the best probe, and of its best rival.

    `best`: quadratic probes, the best one first.
    """
    if not len(best):
        return [], []
    top = best.iloc[0].to_dict()
    place = JudgedPlace.read(top)
    accuracy, majority = (
        number(100 * top[name], ".1f") for name in ("accuracy", "image_majority_accuracy")
    )
    sentence = (
        f"The best quadratic probe classifies {accuracy}\u00a0% of patch pairs correctly "
        f"({place.words}), the majority class of each image {majority}\u00a0%. "
    )
    words = f"classified correctly by the quadratic probe of {place.words}"
    listed = [KeyNumber(accuracy, "% of pairs", words)]
    rivals = rivals_of(quoted, top)
    if not len(rivals):
        sentence += "No rival that predicts from classes or positions was fitted there."
    for _, rival in rivals.head(1).iterrows():
        value, verdict = number(100 * rival["accuracy"], ".1f"), _verdict(judgments, place)
        name = _RIVAL_WORDS[rival["family"]]
        sentence += f"Its best rival, {name}, classifies {value}\u00a0%{verdict}."
        words = f"classified correctly by its best rival, {name}"
        listed.append(KeyNumber(value, "% of pairs", words))
    words = "of the majority class of each image"
    return [sentence], [*listed, KeyNumber(majority, "% of pairs", words)]


def _by_model(quoted: Quoted, best: pd.DataFrame) -> list[Finding]:
    """Say what the quadratic probe of each model classifies correctly, next to its rivals."""
    points = []
    for row in best.head(_LISTED).to_dict("records"):
        rivals = "".join(
            f"; {_RIVAL_WORDS[rival['family']]} {number(rival['accuracy'], '.1%')}"
            for _, rival in rivals_of(quoted, row).sort_values("family").iterrows()
        )
        majority = number(row["image_majority_accuracy"], ".1%")
        accuracy = percent_words(row, "\u00a0%")
        text = f"{accuracy}{rivals}; majority class of each image {majority}."
        points.append((f"{JudgedPlace.read(row).words}:", text))
    more = f" The {_LISTED} best of {len(best)}." if len(best) > _LISTED else ""
    return [Finding(f"{_BY_MODEL}{more}", tuple(points))] if points else []


def _verdict(judgments: Sequence[Judgment], place: JudgedPlace) -> str:
    """Say the verdict on the claim that the quadratic probe beats its rivals; empty without one."""
    claim = OVER["class_position"]  # which is about its best rival, whichever that is
    for judgment in judgments:
        if judgment.claim.name == claim and judgment.effect.about == place:
            is_verb = judgment.verdict in ("holds", "does not hold")
            why = f" ({judgment.reason})" if judgment.reason else ""
            return (
                f"; the claim of a gain over it {'' if is_verb else 'is '}{judgment.verdict}{why}"
            )
    return ""


def _notes(rows: pd.DataFrame) -> list[str]:
    notes = []
    oracle = rows.groupby("dataset")["class_oracle_accuracy"].mean()
    determined = sorted(str(name) for name in oracle.index[oracle > 1 - 1e-9])
    if determined:
        notes.append(
            f"On {', '.join(determined)} no scene has two objects of one class. There, the classes "
            "determine the objects, and nothing beyond the class can be shown."
        )
    if len(rows):
        notes.append(
            "After the last block, patch tokens of a model whose training objective reads only "
            "[CLS] are not trained. Inner layers are comparable between models."
        )
    return notes


def _note_skipped(table: pd.DataFrame) -> list[str]:
    """Count the test images without a pair, by dataset and grid."""
    counted = table.groupby(["dataset", "grid"], sort=False)["n_skipped"].max()
    counts = counted.reset_index().to_dict("records")
    named = [
        f"{row['dataset']} ({row['grid']}) {row['n_skipped']}" for row in counts if row["n_skipped"]
    ]
    if not named:
        return []
    return [f"Test images without a pair of patches, which are left out: {', '.join(named)}."]


def _warnings(table: pd.DataFrame) -> list[Warned]:
    flagged = table[table["flags"].str.contains("not_converged")]
    named = tuple(
        " ".join(str(row[name]) for name in _LABELS) for row in flagged.to_dict("records")
    )
    words = "the fit did not converge: more steps would lower its loss"
    return [Warned(words, named)] if named else []


def _rows(table: pd.DataFrame) -> PageTable:
    columns: list[Any] = [Column(name, name, "label") for name in _LABELS]
    columns += [c for c in NUMBERS if c.source in table and table[c.source].notna().any()]
    columns.append(Column("flags", "flags"))
    return page_table("All measurements", columns, table, folded=True)


_PUBLISHED_COLUMNS = (
    Column("dataset", "dataset", "label"),
    Column("model", "model", "label"),
    Column("published, best layer", "accuracy", "number", format=".1%"),
    Column("that layer", "layer"),
    Column("ours, that layer", "ours_there", "number", format=".1%"),
    Column("ours, best layer", "ours", "number", format=".1%"),
    Column("our best layer", "our_layer"),
    Column("how protocols differ", "differs"),
)
_ABOUT_PUBLISHED = (
    "Accuracy of quadratic probes in Table 1 of the IsSameObject paper (revised version, as a "
    "secondary source quotes it), and ours, by the test accuracy of the best layer as in the "
    "paper. Layers are counted as here: its layer l is l + 1.",
)


def _published(quoted: Quoted, inputs: Inputs, section: Mapping[str, Any]) -> list[Section]:
    """Return the section that puts the published Table 1 next to this run's numbers."""
    if not section.get("fits"):
        return []
    datasets, models = (inputs.content.get(name) or () for name in ("datasets", "models"))
    compared = read_comparison(comparable(datasets, models, section), inputs.resources)
    rows = published_next_to(quoted.where(rank=0).single, compared)
    if not len(rows):
        return []
    rows = rows.assign(differs=["; ".join(reasons) or "not" for reasons in rows["differs"]])
    listed = page_table("Table 1 of the IsSameObject paper", _PUBLISHED_COLUMNS, rows)
    return [Section("published", "Published values", _ABOUT_PUBLISHED, tables=(listed,))]


_GEOMETRY = "same_object_geometry"


def _geometry(table: pd.DataFrame, quoted: Quoted) -> list[Section]:
    """Return what scores and tokens are like; no section where nothing was measured."""
    if not len(table):
        return []
    best = best_layers(quoted)[["dataset", "model", "layer"]].rename(columns={"model": "group"})
    models = quoted.where(family=QUADRATIC, rank=0).single.merge(best)
    table = table.rename(columns=VALUE_ENDS)
    here = table.merge(models[["dataset", "model", "layer"]].drop_duplicates())
    names = ("dataset", "model", "layer", "probe", "quantity", "at")
    columns = [
        *(Column(name, name, "label") for name in names),
        Column("value", "value", "number", format=".3f", interval=True),
        Column("unit", "unit"),
        Column("reason", "reason"),
    ]
    figures = (_GEOMETRY, "same_object_copies", "same_object_cross_layers")
    listed = (
        page_table("At the layer that validation prefers", columns, here),
        page_table("All numbers", columns, table, folded=True),
    )
    return [Section("geometry", "What tokens are like", (), figures=figures, tables=listed)]


_ABOUT_EDITS = (
    "Each model is judged at the edited layer whose probe has the lowest loss on validation. "
    "Claims are about the directions that the probe reads most, without those in which patches "
    "differ by class or by position; the table gives the overlap of each subspace with both. The "
    "effect of an edit is the difference from every control: random directions, random ones that "
    "hold as much variance, the directions of most variance moved as far, and, for removal, "
    "tokens moved as far towards the mean.",
    "That a probe fails where what it reads was removed shows that the directions are those that "
    "it reads, not that the model uses them. Later layers, attention and the model's own loss are "
    "evidence for use by the model.",
)


def _edits(edits: pd.DataFrame) -> list[Section]:
    """Return the section with both figures of edits; none where nothing was edited."""
    if not len(edits):
        return []
    figures = ("same_object_attention", "same_object_ablation", EDITS_TABLE)
    return [Section("edits", "Ablating the probe subspace", _ABOUT_EDITS, figures=figures)]


def _missing_losses(edits: pd.DataFrame) -> list[Finding]:
    """Say which models have no loss of their own; nothing without edits."""
    reasons = without_loss(edits) if len(edits) else {}
    points = [("No loss", f"{', '.join(models)}: {reason}.") for reason, models in reasons.items()]
    words = "The models' own pretraining loss under edits:"
    return [Finding(words, tuple(points))] if points else []
