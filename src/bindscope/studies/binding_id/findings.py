"""What the report says about the study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import (
    Chapter,
    Column,
    Finding,
    PageTable,
    Section,
    page_table,
    points_by_claim,
)
from bindscope.statistics.verdict import Verdict
from bindscope.studies.binding_id.answers.mechanisms import (
    ACCOUNTS,
    NO_EFFECT,
    WORKS,
    Dimensions,
    Judged,
    accounts,
    dimensions,
    judged,
)
from bindscope.studies.binding_id.answers.mixture_findings import mixture_findings, mixture_sections
from bindscope.studies.binding_id.answers.routes import CARRIES, sentences
from bindscope.studies.binding_id.views import MODEL, named, own_items, summaries

_ABOUT = (
    "A text says which item is in which thing of an image; a question names the thing by what the "
    "image alone shows (its shape). The context is read once and frozen: its activations are "
    "replaced or added to at some tokens in all layers, and the question is asked again "
    "(arXiv 2505.22200). If the answer follows the place of a thing and not its content, place "
    "and item are tied by a binding ID."
)
_NOT_REAL = {
    "oracle": "oracles have a planted mechanism, so what is found says whether these experiments "
    "can tell mechanisms apart, and nothing about models that people use",
    "toy": "toys were trained from nothing on this task alone, and heads that attend to the one "
    "and the two tokens before were planted in their first two layers, so that they say how a "
    "small network can solve the task",
    "interchange_toy": "toys that are made to bind were trained by interchange: answers after "
    "replacements were part of their training, so that they bind by slot by construction, and "
    "say only that these experiments find binding IDs where they are",
    "local": "what is in a folder of yours is not known here",
}
_TAUGHT = (
    "toys that are asked for places were taught the first of the two hops, from an item to the "
    "colour that mentions its thing, before they were asked for both"
)
_NO_PAPER = (
    "The paper's Table 1 could not be obtained, so no number of it stands beside ours. Of text "
    "alone, arXiv 2310.17191 reports for LLaMA-30B 0.99 and 1.00 of answers as before without "
    "intervention, 0.00 to 0.03 with the mean difference on entities or attributes, and 0.97 and "
    "0.99 with both: another model on another task, to show what the pattern looks like."
)

_HEADS = (
    "A group of tokens is hidden from one head of one layer, in all tokens of the question; beside "
    "what that takes stands where the head looks when nothing is hidden. Looking is not carrying: "
    "a head may look at the right thing and not be needed, since another one does the same, and "
    "the last token need not be the one that looks."
)
_SUBSPACES = (
    "Mean tokens of slots (or roles) of other scenes, their content cancelled, span a subspace at "
    "every layer and token; its first principal components span smaller ones, or discriminants and "
    "gradients find others. Things exchange "
    "their parts in one of them, or get all but that part from the same thing as read elsewhere. "
    "Of three things or more one is moved in the plane of two mean differences."
)
_CHOSEN = (
    ". Gradients find subspaces that have an effect, be it by what the model itself uses or not. "
    "So more is asked of these: that part alone, of the same thing as read elsewhere, exchanges "
    "answers (what they were fitted to, here of other scenes); the same fit to answers by chance "
    "does not, and one of colours changes no answers"
)
_WAYS = {"means": "Of means", "discriminant": "Of discriminants", "gradients": "By gradients"}

TABLE_1 = (
    Column("model", "name", "label", "with what kind of model it is"),
    Column("task", "task", "label"),
    Column("added to", "condition", "label", "O objects, I items, C colours; `random`: as long, "
           "drawn for each layer and token; `by slot`: estimated slot by slot"),
    Column("as before", "before", "number", "answers with the thing's own item", ".2f"),
    Column("as expected", "share", "number", "answers that the account of slots expects", ".2f",
           True),
    Column("median", "share_median", "number", "as expected, calibrated by medians", ".2f"),
    Column("null query", "share_null", "number", "as expected, calibrated by a question about "
           "what is not there", ".2f"),
    Column("change", "change", "number", "of these answers, against no intervention", "+.2f", True),
    Column("p", "p_adjusted", "number", "sign test, Holm's procedure over the experiment", ".1e"),
    Column("rows", "n_rows", "number", "", "d"),
)  # fmt: skip
ACCOUNT_COLUMNS = (
    Column("model", "model", "label", "with what kind of model it is"),
    Column("things and items are tied", "words", "label"),
    Column("verdict", "verdict", "label"),
    Column("against it", "against", "text", "interventions with the share of answers that slots "
           "expect"),
)  # fmt: skip
SWAP_COLUMNS = (
    Column("model", "name", "label", "with what kind of model it is"),
    Column("task", "task", "label"),
    Column("replaced", "condition", "label"),
    Column("as expected", "share", "number", "answers that the account of slots expects", ".2f",
           True),
    Column("swapped", "swap", "number", "answers of another thing that is there", ".2f", True),
    Column("by guessing", "swap_chance", "number", "swapped, if wrong answers fell on any of the "
           "others alike", ".2f"),
    Column("rows", "n_rows", "number", "", "d"),
)  # fmt: skip
RECORD_COLUMNS = (
    Column("model", "name", "label", "with what kind of model it is"),
    Column("records", "task", "label"),
    Column("hidden from the question", "condition", "label"),
    Column("right", "share", "number", "answers; a record is the unit", ".2f", True),
    Column("change", "change", "number", "against nothing hidden, or as it says", "+.2f", True),
    Column("p", "p_adjusted", "number", "sign test, Holm's procedure", ".1e"),
    Column("records asked", "n_rows", "number", "", "d"),
)  # fmt: skip
_PHOTOS = (
    "The question may not look at the tokens of its thing's box, or at as many of a box of that "
    "size where no thing is. The text between image and question has seen all of the photo, so "
    "what hiding costs is what the question itself still has to look up."
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what was found; see `core.interfaces.Findings`."""
    table, positions = tables.get("binding_id"), tables.get("binding_id_positions")
    heads, mixture = tables.get("binding_id_heads"), tables.get("binding_id_mixture")
    shown = [one for one in (table, positions, heads, mixture) if one is not None]
    if not shown:
        return Chapter()
    return Chapter(
        lead=(_origins(pd.concat([one[["origin", "asked"]] for one in shown])),),
        headline=("binding_id",),
        findings=(*_findings(table, positions), *_head_findings(heads), *mixture_findings(mixture)),
        sections=(*_sections(table, positions), *_head_sections(heads), *mixture_sections(mixture)),
    )


def _origins(rows: pd.DataFrame) -> str:
    """Say what kinds of models were read, before any number of theirs."""
    origins = set(rows["origin"])
    kinds = [kind for kind in _NOT_REAL if kind in origins]
    real = "pretrained" in origins
    first = "Beside real models there are others here" if real else "No real model was read"
    said = [_NOT_REAL[kind] for kind in kinds]
    if (rows["origin"].eq("toy") & rows["asked"].eq("slot")).any():
        said.append(_TAUGHT)
    words = "; ".join(said)
    return f"{first}: {words}." if kinds else "All models here are pretrained ones."


def _findings(table: pd.DataFrame | None, positions: pd.DataFrame | None) -> list[Finding]:
    found = []
    if table is not None and (points := _account_points(table)):
        lead = (
            "How a model ties items to things, by interventions on which accounts disagree. One "
            f"works if more than {WORKS:.0%} of the rows answer as slots demand (the whole 95 % "
            "interval); an account holds if all works that should and nothing that should not:"
        )
        found.append(Finding(lead, points))
    if table is not None:
        lead = (
            "How many dimensions hold the IDs. A subspace holds them if two things that exchange "
            "their parts in it exchange their answers (objects alone, items alone; both: answers "
            "come back), and if answers stay when all but these parts is of the same thing as read "
            "elsewhere, and when parts in a random subspace of as many dimensions are exchanged: "
            f"each in more than {WORKS:.0%} of the rows (the whole 95 % interval)"
        )
        more = _CHOSEN if table["found_by"].eq("gradients").any() else ""
        found.append(Finding(f"{lead}{more}:", _dimension_points(table)))
        together = _alike(judged(table, positions))
        rule = (
            f"in answers as expected (to hold, more than {WORKS:.0%}) or in their change (no "
            f"effect: within {NO_EFFECT:.0%}); mean differences between slots where there are "
            "such, else between roles:"
        )
        for papers, lead in ((True, "The paper's claims"), (False, "What else would follow")):
            claims = [one for one in together if one.papers == papers]
            points = points_by_claim(claims, lambda one: f"{one.numbers} {one.model}")
            found.append(Finding(f"{lead}, {rule}", points))
    return [one for one in found if one.points]


def _head_findings(heads: pd.DataFrame | None) -> Iterator[Finding]:
    if heads is not None and (points := sentences(heads)):
        lead = (
            "Which heads carry what the question sees of a group (layer.head). A head does if more "
            f"than {CARRIES:.0%} of the lead that is lost with all heads blind is lost with this "
            "one (the whole 95 % interval); heads that stand in for each other take less head by "
            "head than together:"
        )
        yield Finding(lead, points)


def _head_sections(heads: pd.DataFrame | None) -> Iterator[Section]:
    if heads is not None:
        yield Section("heads", "Which heads?", (_HEADS,), figures=("binding_id_heads",))


def _alike(judged: Iterable[Judged]) -> list[Judged]:
    """Join the models of which a claim says the same in the same numbers."""
    tasks: dict[tuple[str, Verdict, str, bool], dict[str, list[str]]] = {}
    for one in judged:
        name, _, task = one.model.partition(", ")
        names = tasks.setdefault((one.claim, one.verdict, one.numbers, one.papers), {})
        names.setdefault(name, []).append(task)
    return [
        Judged(
            claim, verdict, ", ".join(_on(name, on) for name, on in names.items()), numbers, papers
        )
        for (claim, verdict, numbers, papers), names in tasks.items()
    ]  # fmt: skip


def _on(name: str, tasks: Sequence[str]) -> str:
    return f"of {name} on {' and '.join(tasks)}" if any(tasks) else f"of {name}"


def _account_points(table: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    judgements = accounts(table)
    points = []
    for model in dict.fromkeys(one.model for one in judgements):
        own = [one for one in judgements if one.model == model]
        held = [ACCOUNTS[one.account] for one in own if one.verdict == "holds"]
        left = [ACCOUNTS[one.account] for one in own if one.verdict == "undecided"]
        silent = all("none" in one.against.replace(" ", ",").split(",") for one in own)
        nothing = "does not answer the question" if silent else "agrees with no account here"
        words = f"ties them {held[0]}" if held else nothing
        if left:
            words += f"; undecided: {', '.join(left)}"
        points.append((model, f"{words}."))
    return tuple(points)


def _dimension_points(table: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    """Say of each model what subspaces hold its IDs, by what found them if that was not means."""
    found = list(dimensions(table))
    plain = {one.found_by for one in found} <= {"means"}
    points: dict[str, list[str]] = {}
    for one in found:
        words = _dimensions(one) if plain else f"{_WAYS[one.found_by]}: {_dimensions(one)}"
        points.setdefault(one.model, []).append(words)
    return tuple((model, " ".join(words)) for model, words in points.items())


def _dimensions(one: Dimensions) -> str:
    fewer, late = ("", "") if one.ended else (", maybe fewer", " (not all fits had ended)")
    size = f"{one.found} dimension{'s' if one.found > 1 else ''}"
    if one.verdict == "holds":
        return f"{size} {'are' if one.found > 1 else 'is'} enough{fewer}{late}."
    words = "no subspace holds them" if one.verdict == "does not" else "undecided"
    return f"{words}; in the largest, of {size}: {one.against}{late}."


def _sections(table: pd.DataFrame | None, positions: pd.DataFrame | None) -> list[Section]:
    found = []
    kinds = set() if table is None else set(table["experiment"])
    if table is not None and kinds - {"records"}:
        found.append(
            Section(
                "interventions",
                "Replaced and added activations",
                paragraphs=(_ABOUT, _NO_PAPER),
                figures=("binding_id_mean",),
                tables=tuple(_tables(table)),
            )
        )
    if kinds & {"layers", "doses"}:
        found.append(Section("sweeps", "Where and how much", figures=("binding_id_sweeps",)))
    if "subspaces" in kinds:
        words = (_SUBSPACES,)
        figures = ("binding_id_subspaces",)
        found.append(Section("subspaces", "In how many dimensions?", words, figures=figures))
    if table is not None and "records" in kinds:
        rows = page_table("Hidden things", RECORD_COLUMNS, named(summaries(table, "records")))
        found.append(Section("photos", "Photos of your own", (_PHOTOS,), tables=(rows,)))
    if positions is not None:
        words = (
            "Keys are rotated as if two things stood elsewhere; values and all else stay. If "
            "positions tie things to items, answers are exchanged where positions are.",
        )
        found.append(
            Section("positions", "Do positions matter?", words, figures=("binding_id_positions",))
        )
    return found


def _tables(table: pd.DataFrame) -> list[PageTable]:
    found = []
    if "mean" in set(table["experiment"]):
        before = own_items(table, "mean").rename(columns={"share": "before"})
        rows = named(summaries(table, "mean")).merge(before, on=[*MODEL, "condition"])
        found.append(page_table("Mean interventions", TABLE_1, rows))
    replaced = summaries(table, "factorizability")
    # Of two hops all candidates are there, so every wrong answer is one.
    replaced = replaced[replaced["asked"].eq("item")]
    replaced = replaced[replaced["condition"].isin(["none", "O all", "I all"])]
    if (replaced["share"] < 1).any():
        title = "Swapped answers (illusory conjunctions)"
        found.append(page_table(title, SWAP_COLUMNS, named(replaced), folded=True))
    judgements = accounts(table)
    if judgements:
        frame = pd.DataFrame(
            {"model": one.model, "words": ACCOUNTS[one.account], "verdict": one.verdict,
             "against": one.against}
            for one in judgements
        )  # fmt: skip
        found.append(page_table("Accounts of binding", ACCOUNT_COLUMNS, frame, folded=True))
    return found
