"""Study four, binding IDs: which item goes with which thing, by interventions on activations."""

from __future__ import annotations

from functools import partial
from typing import Any

from bindscope.core.graph import Graph
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.graph.shared import Shared
from bindscope.graph.steps import NAME
from bindscope.studies.binding_id.config import BindingIdSection, problems
from bindscope.studies.binding_id.products import STEPS, add_named_toy, add_products
from bindscope.studies.binding_id.registry import EXPERIMENTS

DECIDES_NOTHING = True

_HERE = "bindscope.studies.binding_id"
_RULE = "binding_id_interventions"
_figure = partial(FigureEntry.build, _HERE)


def _rows(graph: Graph, shared: Shared, section: BindingIdSection) -> Request | None:
    jobs = graph.select(_RULE)
    return Request({"rows": jobs}) if jobs else None


def _vectors(graph: Graph, shared: Shared, section: BindingIdSection) -> Request | None:
    jobs = graph.select("binding_id_estimates")
    return Request({"rows": jobs}, reads={"rows": ("vectors",)}) if jobs else None


def _table_of(*experiments: str) -> Any:
    """Ask for the table, where some job has one of the experiments that a figure shows."""

    def request(graph: Graph, shared: Shared, section: BindingIdSection) -> Request | None:
        tables = graph.select("table", table="binding_id")
        present = {job.wildcards["experiment"] for job in graph.select(_RULE)}
        return Request({"table": tables}) if tables and present & set(experiments) else None

    return request


STUDY = Study(
    name="binding_id",
    title="Binding IDs",
    section=f"{_HERE}.config:BindingIdSection",
    problems=problems,
    products=add_products,
    steps=STEPS,
    wildcards={
        "suite": NAME,
        "task": NAME,
        "subject": NAME,
        "toy": NAME,
        "experiment": "|".join((*EXPERIMENTS, "records")),
    },
    tables=(
        TableEntry("binding_id", f"{_HERE}.schemas:BINDING_ID", _rows),
        TableEntry("binding_id_vectors", f"{_HERE}.schemas:BINDING_ID_VECTORS", _vectors),
    ),
    figures=(
        _figure(
            "figures:binding_id",
            "Answers after replacing activations",
            "Answers after activations of one context replace those of another, in percent of "
            "rows. Rows of a map: questions (O0, O1 about this context, O0', O1' about the other); "
            "columns: answers; frames: answers that binding by slot predicts. Dark frames support "
            "binding by slot. The context is frozen; oracles have a planted mechanism. No "
            "intervals are drawn.",
            _table_of("factorizability"),
        ),
        _figure(
            "published_figures:binding_id_log_probabilities",
            "Log-probabilities after replacing activations",
            "Mean log-probability (nats) of answers after activations of one context replace those "
            "of another: Fig. 3 of the binding ID paper. Rows of a map: questions; columns: "
            "answers; frames: answers that binding by slot predicts, which the released notebook "
            "highlights, too. Of the paper's values only these outcomes are known. No intervals "
            "are drawn.",
            _table_of("factorizability"),
        ),
        _figure(
            "published_figures:binding_id_position_log_probabilities",
            "Log-probabilities by shift of key positions",
            "Mean log-probability (nats) of the two answers to each question by how far the keys "
            "of two objects are rotated: Fig. 5 of the binding ID paper. Solid: the object's own "
            "item. Bands: 95 % bootstrap intervals over rows. The paper's outcome is that solid "
            "lines stay above dashed ones at every shift.",
            _table_of("positions"),
        ),
        _figure(
            "figures:binding_id_mean",
            "Answers after adding mean differences",
            "Left: percent of unchanged answers after mean differences between roles or slots are "
            "added to objects (O), items (I) or colors (C). Binding IDs predict 0 for O or I "
            "alone, 100 for both together, and 100 for random vectors. Right: controls, and "
            "replacements on which mechanisms disagree. No intervals are drawn; the table has "
            "them.",
            _table_of("mean", "signatures"),
        ),
        _figure(
            "figures:binding_id_sweeps",
            "Answers by layer and by dose",
            "Percent of answers that binding by slot predicts, a row per model. Above: "
            "activations replaced at some layers only, with the context frozen (where binding is "
            "used) or (anew) with later layers computed again (where it is written). Below: "
            "multiples of the mean difference added to objects or items. No intervals are drawn; "
            "the table has them.",
            _table_of("layers", "mean"),
        ),
        _figure(
            "figures:binding_id_subspaces",
            "Answers by dimension of the subspace",
            "Percent of answers that binding by slot predicts, by dimension of the subspace of "
            "mean differences. Solid: two objects swap parts in it; dashed: all but these is "
            "replaced; dotted: random subspace. No intervals are drawn.",
            _table_of("subspaces"),
        ),
        _figure(
            "figures:binding_id_positions",
            "Answers by shift of key positions",
            "Percent of unchanged answers, a row per model, when the keys of two objects are "
            "rotated to other positions: toward each other (below 1), exchanged (1) or beyond. If "
            "prompt positions carried the binding, answers would change, and the percent at 1 "
            "would be 0. No intervals are drawn; the table has them.",
            _table_of("positions"),
        ),
        _figure(
            "figures:binding_id_heads",
            "Lost lead by head",
            "Fraction of the correct answer's log-probability lead lost when a head of a layer "
            "cannot attend from the question to a token group; 1: as with all heads. Gray: no "
            "effect. Dark heads carry the group; heads can replace each other. No intervals are "
            "drawn.",
            _table_of("heads"),
        ),
        _figure(
            "figures:binding_id_mixture",
            "Answers by mechanism",
            "Percent of a model's answers that follow each mechanism (slot, color, content), "
            "fitted by maximum likelihood to answers on which mechanisms disagree; the rest are "
            "guesses. Lines: 95 % bootstrap intervals over rows, from the left end of each part. A "
            "bar with one color follows one mechanism.",
            _table_of("mixture"),
        ),
    ),
    trains={"toy": add_named_toy},
    findings=f"{_HERE}.findings:chapter",
    findings_code=tuple(f"{_HERE}.experiments.{name}:NOTES" for name in EXPERIMENTS),
    resources=("resources/published/binding_id.csv",),
    examples={"two-things": f"{_HERE}.measure:two_things"},
)
