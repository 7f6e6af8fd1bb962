"""Study two, IsSameObject: whether two patches of an image show the same object."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from bindscope.core.graph import Graph
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.figures import FEWEST_POINTS
from bindscope.graph.shared import Shared
from bindscope.graph.steps import NAME
from bindscope.studies.same_object.config import PairSection, problems
from bindscope.studies.same_object.products import STEPS, add_products
from bindscope.studies.same_object.protocol import ABLATION, PROBES, comparable

DECIDES_NOTHING = True

_HERE = "bindscope.studies.same_object"


def _rows(graph: Graph, shared: Shared, section: PairSection) -> Request:
    """Ask for the rows of all fits, and what is known of the models that they name."""
    depths = {name: model.depth for name, model in shared.models.items()}
    fits = {"fits": graph.select("same_object_fit")}
    return Request(fits, {"n_layers": depths}, {"fits": ("images",)})


def _made_by(step: str, role: str, *outputs: str) -> Any:
    """Return a request for all that a step makes, and some of its files; nothing without it."""

    def request(graph: Graph, shared: Shared, section: PairSection) -> Request | None:
        products = graph.select(step)
        return Request({role: products}, reads={role: outputs}) if products else None

    return request


def _about(table: str, step: str, scores: str = "") -> Any:
    """Return a request for a table, the order of models, and which are seeds of one.

    Nothing without the step. `scores`: another table that is read.
    """

    def request(graph: Graph, shared: Shared, section: PairSection) -> Request | None:
        if not graph.select(step):
            return None
        inputs = {"table": graph.select("table", table=table)}
        if scores:
            inputs["scores"] = graph.select("table", table=scores)
        groups = [{"name": group.name, "models": list(group.models)} for group in section.groups]
        return Request(inputs, {"models": list(shared.models), "model_groups": groups})

    return request


_measured = _about("same_object", "same_object_fit")
_geometry = _about("same_object_geometry", "same_object_geometry")
_edits = _about("same_object_edits", "same_object_effects")


def _with_paper(request: Any) -> Any:
    """Add to a request which fits the IsSameObject paper has too, and how protocols differ."""

    def requested(graph: Graph, shared: Shared, section: PairSection) -> Request | None:
        plain: Request | None = request(graph, shared, section)
        if plain is None:
            return None
        parts = (shared.datasets.values(), shared.models.values())
        datasets, models = ([part.model_dump(mode="json") for part in each] for each in parts)
        about = comparable(datasets, models, section.model_dump(mode="json"))
        return replace(plain, content={**plain.content, "comparable": about})

    return requested


def _attended(graph: Graph, shared: Shared, section: PairSection) -> Request | None:
    """Ask for the table where attention was measured in enough layers of a model for a curve."""
    layers = Counter(
        tuple(product.wildcards[name] for name in ("dataset", "model", "probe"))
        for product in graph.select("same_object_effects")
    )
    several = max(layers.values(), default=0) >= FEWEST_POINTS
    return _edits(graph, shared, section) if several else None


def _ablated(graph: Graph, shared: Shared, section: PairSection) -> Request | None:
    """Ask for the table where heads of classes or objects were fitted again under edits."""
    families = {probe.name: probe.family for probe in section.probes}
    again = section.effects.retrained.probes if section.effects else ()
    heads = {"class_pointwise", "identity_pointwise"} & {families[name] for name in again}
    return _edits(graph, shared, section) if heads else None


def _layers(graph: Graph, shared: Shared, section: PairSection) -> Request | None:
    """Ask for the table where probes read enough layers of a model for a curve."""
    layers: dict[tuple[str, str], set[str]] = {}
    for fit in graph.select("same_object_fit"):
        of_model = layers.setdefault((fit.wildcards["dataset"], fit.wildcards["model"]), set())
        of_model.update(fit.wildcards["layers"].split("-"))
    several = any(len(names) >= FEWEST_POINTS for names in layers.values())
    return _measured(graph, shared, section) if several else None


def _ranked(graph: Graph, shared: Shared, section: PairSection) -> Request | None:
    """Ask for the table where a quadratic probe is also measured truncated."""
    has_ranks = any(probe.family == "quadratic" and probe.ranks for probe in section.probes)
    return _measured(graph, shared, section) if has_ranks else None


_figure = partial(FigureEntry.build, _HERE)

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
        "layers": r"(?:none|(?:[0-9]+|final)(?:-(?:[0-9]+|final))*)",
    },
    tables=(
        TableEntry("same_object", f"{_HERE}.tables:SAME_OBJECT", _rows),
        TableEntry(
            "same_object_strata",
            f"{_HERE}.tables:STRATA",
            _made_by("same_object_fit", "fits", "strata"),
        ),
        TableEntry(
            "same_object_geometry",
            f"{_HERE}.tables:GEOMETRY_TABLE",
            _made_by("same_object_geometry", "rows"),
        ),
        TableEntry(
            "same_object_edits",
            f"{_HERE}.tables:EDITS_TABLE",
            _made_by("same_object_effects", "rows"),
        ),
    ),
    figures=(
        _figure(
            "figures.probes:same_object_layers",
            "Same-object accuracy by layer",
            "Accuracy, and area under the ROC curve within images, of probes that classify whether "
            "two patches are of one object, by layer. Bands: 95 % intervals over training seeds "
            "for groups, else over test images. Compare the quadratic probe with its rivals: class "
            "+ position, and the lines of positions only, majority and true classes, which use no "
            "token.",
            _with_paper(_layers),
            PROBES,
        ),
        _figure(
            "figures.probes:same_object_models",
            "Same-object accuracy by model",
            "Accuracy of probes on test pairs of patches (same object or not), at the layer that "
            "the validation split selects. Bars: 95 % intervals over training seeds for groups, "
            "else over test images. Compare the quadratic probe with its rivals: class + position, "
            "and the vertical lines, which use no token (positions only, majority of each image, "
            "true classes).",
            _with_paper(_measured),
            PROBES,
        ),
        _figure(
            "figures.probes:same_object_strata",
            "Same-object AUC within a class, by distance",
            "Pairs of patches of one class: of one object, or of two objects of that class. Area "
            "under the ROC curve within images, by distance; 0.5 is chance. Bands: 95 % intervals "
            "over test images. Dashed: positions only. Bins under 200 pairs are omitted. A point "
            "above the dashed line separates objects of one class.",
            _about("same_object_strata", "same_object_fit", "same_object"),
        ),
        _figure(
            "figures.probes:same_object_ranks",
            "Same-object accuracy by rank",
            "Accuracy on test pairs of the fitted quadratic form, truncated to its largest "
            "eigenvalues without refitting; dashed: full rank. No intervals are drawn. The rank at "
            "which a line reaches its dashed one is the number of directions in use.",
            _ranked,
        ),
        _figure(
            "figures.geometry:same_object_maps",
            "Same-object probability maps by layer",
            "Probability, by the quadratic probe of each layer, that the outlined query patch and "
            "every other patch belong to one object. Two queries per scene, from its two largest "
            "objects; background patches may be outside the probe's training pairs. A map that "
            "matches one object's outline groups its patches. Examples, without intervals.",
            _made_by("same_object_maps", "maps"),
        ),
        _figure(
            "figures.geometry:same_object_copies",
            "Differences of identical objects by layer",
            "One object at four places of one image, whole patches apart. Tokens of the second, "
            "third and fourth object minus those of the first, in the plane of their first two "
            "principal components; axes give shares of variance. Separate clusters mean that the "
            "difference depends on the object, not on the patch. Layer 0: positions alone. "
            "Examples, without intervals.",
            _made_by("same_object_maps", "maps"),
        ),
        _figure(
            "figures.geometry:same_object_geometry",
            "Position and same-object probability by layer",
            "By layer: position decoded by ridge regression; mean same-object probability of pairs "
            "of patches. Bands: 95 % intervals over training seeds for groups, else over test "
            "images. An exact copy that is scored as one object shows a probe that goes by "
            "appearance.",
            _geometry,
        ),
        _figure(
            "figures.geometry:same_object_cross_layers",
            "Same-object AUC across layers",
            "Area under the ROC curve within images of quadratic probes of one layer on tokens of "
            "another layer; colors start at chance, 0.5. Bright cells off the diagonal mean that "
            "layers share the code. No intervals are drawn.",
            _geometry,
        ),
        _figure(
            "figures.effects:same_object_attention",
            "Attention and same-object probability by layer",
            "Above: correlation of the next block's attention with the probe's same-object "
            "probability (blue), and with the labels at equal class, distance and similarity "
            "(orange); dots: heads. Below: fraction of attention on a patch's own object, compared "
            "with uniform attention. Bands: 95 % intervals over test images. Above 0, or above "
            "uniform: attention follows objects.",
            _with_paper(_attended),
            PROBES,
        ),
        _figure(
            "figures.effects:same_object_ablation",
            "Segmentation and loss under edits of the probe subspace",
            "Table 2 of the IsSameObject paper: probes of classes and objects fitted again to "
            "tokens whose whole probe subspace is shuffled or replaced by the object's mean (α "
            "stays), on patches of test images, and losses of the edited model. "
            "Dashed: no edit. No intervals are drawn. Shuffling that lowers the overlaps shows "
            "that heads use the subspace.",
            _with_paper(_ablated),
            PROBES,
            ABLATION,
        ),
        _figure(
            "figures.effects:same_object_edits",
            "Effects of editing the probe subspace",
            "Effect of editing the subspace of a quadratic probe (shuffle, inject, remove) on "
            "probes within images, next block's attention and the model's loss. Blue: the part "
            "outside class and position directions; black: all; others: controls. Filled: probes "
            "as fitted; hollow: fitted again. Bars: 95 % intervals over test images (loss: "
            "batches).",
            _edits,
        ),
    ),
    findings=f"{_HERE}.findings:chapter",
    resources=(PROBES,),
    examples={"clutter": f"{_HERE}.known:clutter"},
)
