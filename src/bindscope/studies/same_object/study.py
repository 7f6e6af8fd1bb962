"""Study two, IsSameObject: whether two patches of an image show the same object."""

from __future__ import annotations

from functools import partial
from typing import Any

from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.graph.shared import Shared
from bindscope.graph.steps import NAME
from bindscope.studies.same_object.config import PairSection, problems
from bindscope.studies.same_object.products import STEPS, add_products

_HERE = "bindscope.studies.same_object"


def _fits(graph: Graph) -> dict[str, list[Product]]:
    return {"fits": graph.of("same_object_fit", "same_object_baseline")}


def _strata(graph: Graph, shared: Shared, section: PairSection) -> Request:
    return Request(_fits(graph), reads={"fits": ("strata",)})


def _rows(graph: Graph, shared: Shared, section: PairSection) -> Request:
    """Ask for the rows of all fits, and what is known of the models that they name."""
    depths = {name: model.depth for name, model in shared.models.items()}
    content = {"n_layers": depths, "intervals": section.intervals.model_dump(mode="json")}
    return Request(_fits(graph), content, {"fits": ("images",)})


def _about(table: str, step: str, graph: Graph, shared: Shared, section: PairSection) -> Any:
    """Ask for a table, the order of models, and which are seeds of one; nothing without the step.

    Applied to its first two arguments it is a request.
    """
    if not graph.of(step):
        return None
    groups = [{"name": group.name, "models": list(group.models)} for group in section.groups]
    about = {"models": list(shared.models), "model_groups": groups}
    return Request({"table": graph.of("table", table=table)}, about)


def _made(step: str, role: str, graph: Graph, shared: Shared, section: PairSection) -> Any:
    """Ask for all that a step makes; nothing without it."""
    products = graph.of(step)
    return Request({role: products}) if products else None


_geometry_rows = partial(_made, "same_object_geometry", "rows")
_edit_rows = partial(_made, "same_object_effects", "effects")
_maps = partial(_made, "same_object_maps", "maps")
_measured = partial(_about, "same_object", "same_object_fit")
_geometry = partial(_about, "same_object_geometry", "same_object_geometry")
_edits = partial(_about, "same_object_edits", "same_object_effects")


def _by_stratum(graph: Graph, shared: Shared, section: PairSection) -> Request | None:
    about = _about("same_object_strata", "same_object_fit", graph, shared, section)
    scores = graph.of("table", table="same_object")
    return about and Request({**about.inputs, "scores": scores}, about.content)


def _ranks(graph: Graph, shared: Shared, section: PairSection) -> Request | None:
    """Ask for the weights of the quadratic fits that are also measured truncated."""
    ranked = {p.name for p in section.probes if p.family == "quadratic" and p.ranks}
    fits = graph.of("same_object_fit", control="none")
    quadratic = [fit for fit in fits if fit.wildcards["probe"] in ranked]
    if not quadratic:
        return None
    about = _measured(graph, shared, section)
    inputs = {**about.inputs, "fits": quadratic}
    return Request(inputs, about.content, {"fits": ("weights",)})


_figure = partial(FigureEntry.of, _HERE)

STUDY = Study(
    name="same_object",
    title="Same object",
    section=f"{_HERE}.config:PairSection",
    problems=problems,
    products=add_products,
    steps=STEPS,
    wildcards={
        "entry": NAME,
        "grid": r"[0-9]+x[0-9]+",
        "layers": r"(?:[0-9]+|final)(?:-(?:[0-9]+|final))*",
    },
    tables=(
        TableEntry("same_object", f"{_HERE}.tables:SAME_OBJECT", _rows),
        TableEntry("same_object_strata", f"{_HERE}.tables:STRATA", _strata),
        TableEntry(
            "same_object_geometry",
            f"{_HERE}.tables:GEOMETRY_TABLE",
            _geometry_rows,
        ),
        TableEntry(
            "same_object_edits",
            f"{_HERE}.tables:EDITS_TABLE",
            _edit_rows,
        ),
    ),
    figures=(
        _figure("figures.probes:same_object_layers", "Same-object accuracy by layer", _measured),
        _figure("figures.probes:same_object_models", "Same-object accuracy by model", _measured),
        _figure(
            "figures.probes:same_object_strata",
            "Same-object AUC within a class, by distance",
            _by_stratum,
        ),
        _figure("figures.probes:same_object_ranks", "Same-object accuracy by rank", _ranks),
        _figure(
            "figures.score_maps:same_object_maps",
            "Same-object probability maps by layer",
            _maps,
        ),
        _figure(
            "figures.geometry:same_object_geometry",
            "Position, copies and same-object probability by layer",
            _geometry,
        ),
        _figure(
            "figures.geometry:same_object_distance",
            "Same-object probability by distance",
            _geometry,
        ),
        _figure(
            "figures.geometry:same_object_cross_layers", "Same-object AUC across layers", _geometry
        ),
        _figure(
            "figures.effects:same_object_attention",
            "Attention and same-object probability by layer",
            _edits,
        ),
        _figure(
            "figures.effects:same_object_edits",
            "Effects of editing the probe subspace",
            _edits,
        ),
    ),
    findings=f"{_HERE}.findings:chapter",
    claims=f"{_HERE}.claims:CLAIMS",
    planted=f"{_HERE}.planted:CASES",
    examples={"clutter": f"{_HERE}.known:clutter"},
)
