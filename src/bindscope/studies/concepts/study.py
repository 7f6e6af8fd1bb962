"""Study three, concepts: how embeddings bind concepts, and what generalizes to new objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bindscope.core.graph import Graph
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.figures import FEWEST_POINTS
from bindscope.graph.shared import Shared
from bindscope.graph.steps import NAME
from bindscope.studies.concepts.config import Analysis, ConceptSection, problems
from bindscope.studies.concepts.products import STEPS, add_products
from bindscope.studies.concepts.registry import EMBEDDING_NAME, VECTORS

DECIDES_NOTHING = True

_HERE = "bindscope.studies.concepts"
MEASURED = ("dual_encoder", "concept_geometry", "binding_complexity")  # rows of the table


def _table(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    rows = graph.select(*MEASURED)
    return Request({"rows": rows}) if rows else None


def _measured_by(
    step: str, shows: Callable[[Analysis], bool] | None = None, **wildcards: str
) -> Any:
    """Request the table for a figure of what a step measured, if it `shows` some analysis."""

    def request(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
        some = graph.select(step, **wildcards)
        if not some or (shows and not any(map(shows, section.analyses))):
            return None
        return Request({"table": graph.select("table", table="concepts")})

    return request


def _has_strengths(entry: Analysis) -> bool:
    return len(entry.strengths) >= FEWEST_POINTS


def _has_coverages(entry: Analysis) -> bool:
    return entry.complexity is not None and len(entry.complexity.coverages) >= FEWEST_POINTS


_DUAL = _measured_by("binding_complexity", vectors="dual")


def _pictures(graph: Graph, shared: Shared, section: ConceptSection) -> Request | None:
    names = {entry.name for entry in section.analyses if entry.picture}
    geometry = graph.select("concept_geometry")
    pictured = [product for product in geometry if product.wildcards["analysis"] in names]
    return Request({"pictures": pictured}, reads={"pictures": ("picture",)}) if pictured else None


_figure = partial(FigureEntry.build, _HERE)
_PUBLISHED = "resources/published/concepts.csv"

STUDY = Study(
    name="concepts",
    title="Concept binding",
    section=f"{_HERE}.config:ConceptSection",
    problems=problems,
    products=add_products,
    steps=STEPS,
    wildcards={
        "encoder": NAME,
        "space": r"[0-9]+(?:x[0-9]+)*",
        "query_pool": r"train_only|all",
        "analysis": NAME,
        "embedding": EMBEDDING_NAME,
        "vectors": "|".join(VECTORS),
        "approximator": NAME,
    },
    tables=(TableEntry("concepts", f"{_HERE}.tables:CONCEPTS", _table),),
    figures=(
        _figure(
            "figures:concept_coverage",
            "Recognition of held-out objects by coverage",
            "Held-out object pairs that dual encoders recognize, by the fraction of objects in "
            "training: objects (left) and values (right). Bands: 95 % t intervals over three or "
            "more training seeds, drawn as dots. Dotted: counting values; dashed: chance. A line "
            "above the dotted one generalizes the pairing. Product encoders are planted controls.",
            _measured_by("dual_encoder"),
            _PUBLISHED,
        ),
        _figure(
            "figures:concept_models",
            "Recognition of held-out objects against measures of encoders",
            "One point per trained dual encoder, darker with more training objects. Up: held-out "
            "object pairs recognized. Across: pairs recognized in embeddings that an approximator "
            "predicts for objects it never saw, a panel per approximator; values recognized "
            "(last). Above: rank correlation with its 95 % interval over groups. A correlation is "
            "no cause.",
            _DUAL,
        ),
        _figure(
            "figures:concept_geometry",
            "Fit and retrieval of sums of object vectors",
            "Scene embeddings as sums of one vector per object. Left: R2 out of sample; middle: "
            "retrieval of the scene (or the scene in the other order); right: objects that a probe "
            "decodes from the sum. Filled: object vectors; hollow: sums of value vectors, which "
            "hold no pairing; gray tick: counting values{published|; star: published}. No "
            "intervals are drawn.",
            _measured_by("concept_geometry"),
            _PUBLISHED,
        ),
        _figure(
            "figures:concept_removal",
            "Decoding after a part was subtracted",
            "Probes fitted again after a least-squares part of embeddings was subtracted: values "
            "(left) and objects (right) decoded, by the part. Controls subtract the part of "
            "exchanged values or objects. Gray tick: counting values{published|; star: "
            "published}. No intervals are drawn. A part encodes what its subtraction "
            "lowers and that of its control does not.",
            _measured_by("concept_geometry"),
            _PUBLISHED,
        ),
        _figure(
            "figures:concept_edits",
            "Retrieval and decoding after an edit, by estimator",
            "One object of a scene exchanged in its embedding, strength 1, by estimator of the "
            "objects' vectors: the real scene is retrieved first (left), probes decode the new "
            "values (middle), the probe decodes the new pair (right). Gray tick: counting values"
            "{published|; star: published}. Percent of edits; no intervals are drawn.",
            _measured_by("concept_geometry", lambda entry: 1.0 in entry.strengths),
            _PUBLISHED,
        ),
        _figure(
            "figures:concept_editing",
            "Retrieval and decoding by strength of an edit",
            "Result of adding the difference of two object vectors to a scene's embedding, by "
            "strength (1: the edit). Left: the scene with the new object is retrieved first; "
            "middle: probes decode the new values; right: the probe decodes the new pair. Dotted: "
            "counting values. Percent of edits; no intervals are drawn. An edit works if all "
            "three rise.",
            _measured_by("concept_geometry", _has_strengths),
        ),
        _figure(
            "figures:binding_complexity",
            "Decoding from predicted embeddings by coverage",
            "Accuracy of probes on embeddings that regressors predict for scenes of unseen "
            "objects, by the fraction of objects that the regressors are fitted on (coverage). "
            "Bands: 95 % intervals over objects. Dotted: counting values only. A line above the "
            "dotted one generalizes the pairing to new objects.{published| Stars: published "
            "bounds.}",
            _measured_by("binding_complexity", _has_coverages),
            _PUBLISHED,
        ),
        _figure(
            "figures:concept_picture",
            "Value, object and scene vectors in 3-D",
            "Mean vectors of values (A1, B1), objects (A1B1), scenes and sums of object vectors in "
            "three dimensions, by metric scaling of cosine dissimilarities. Thin lines join a "
            "scene with its sum: short lines mean that the sum predicts the scene. Stress is "
            "Kruskal's (0: exact). No intervals; axes have no meaning.",
            _pictures,
        ),
        _figure(
            "figures:dual_complexity",
            "Decoding from predicted dual embeddings by coverage",
            "Approximators of dual encoders, predicting pairs of unseen objects, by the fraction "
            "of objects in the encoder's training: objects decoded (left), values decoded "
            "(middle), R2 (right, cut at -1). Bands: 95 % t intervals over training seeds, or over "
            "objects of a single encoder. Dotted: counting values. High lines mean that a simple "
            "rule describes the encoder.",
            _DUAL,
        ),
    ),
    findings=f"{_HERE}.findings:chapter",
    examples={"pairs": f"{_HERE}.planted_encoders:pairs"},
)
