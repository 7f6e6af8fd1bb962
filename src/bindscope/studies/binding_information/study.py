"""Study one, binding information: how many bits of what goes with what a representation holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

from bindscope.config.codes import Dataset
from bindscope.config.models import Baseline
from bindscope.config.observed import ClevrSource
from bindscope.config.solids import SolidsRenderer
from bindscope.core.graph import Graph, Product
from bindscope.core.interfaces import FigureEntry, Request, Study, TableEntry
from bindscope.figures import FEWEST_POINTS
from bindscope.graph.shared import Shared
from bindscope.scenes.value_names import value_names
from bindscope.studies.binding_information.config import InformationSection, problems
from bindscope.studies.binding_information.names import is_positive_control
from bindscope.studies.binding_information.products import STEPS, add_products
from bindscope.studies.binding_information.quantities import PLAIN, SHARED

DECIDES_NOTHING = True

RequestOf = Callable[[Graph, Shared, InformationSection], Request | None]
_HERE = "bindscope.studies.binding_information"
_PUBLISHED = "resources/published/binding_information.csv"
_TRENDS = "resources/published/trends.csv"
_HISTOGRAMS = "resources/published/histograms.csv"
_COLOR_CUES = "resources/reference/color_cues.csv"
_PAPERS = (_PUBLISHED, _TRENDS, _HISTOGRAMS, _COLOR_CUES)
_INTRODUCTION = "src/bindscope/studies/binding_information/introduction.html"


def _binding_table(graph: Graph, shared: Shared, section: InformationSection) -> Request:
    inputs = {
        "fits": graph.select("fit"),
        "nulls": graph.select("null"),
        "priors": graph.select("priors", "counted_priors"),
        "truths": graph.select("truth"),
    }
    models = {
        name: {
            "model_kind": model.source.partition(":")[0],
            "model_seed": getattr(model, "seed", None),
            "n_layers": model.depth,
        }
        for name, model in shared.models.items()
    }
    return Request(inputs, {"models": models})


def _products_of(step: str, role: str, *reads: str, in_order: bool = False) -> RequestOf:
    """Return a request for all that a step makes, and for the order of models; None without it."""

    def request(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
        if not (products := graph.select(step)):
            return None
        content = _order(shared, section) if in_order else {}
        return Request({role: products}, content, {role: reads} if reads else {})

    return request


def _table_where(holds: Callable[[Graph, Shared], Any]) -> RequestOf:
    """Return a request for the study's table where something holds of a run."""

    def request(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
        return _about_table(graph, shared, section) if holds(graph, shared) else None

    return request


def last_layer_fits(graph: Graph, shared: Shared) -> list[Product]:
    """Fits of models' last layers; known-answer encoders, baselines and controls left out.

    The last layer is the last block's, or `final` where a model was not read at that.
    """
    models = {
        name
        for name, model in shared.models.items()
        if model.sees_images and not isinstance(model, Baseline)
    }
    fits = [fit for fit in graph.select("fit", control="none") if fit.wildcards["model"] in models]
    deepest = {name: str(model.depth) for name, model in shared.models.items()}
    read = {(fit.wildcards["model"], fit.wildcards["layer"]) for fit in fits}
    last = {name: layer if (name, layer) in read else "final" for name, layer in deepest.items()}
    return [fit for fit in fits if fit.wildcards["layer"] == last[fit.wildcards["model"]]]


def _order(shared: Shared, section: InformationSection) -> dict[str, Any]:
    """Return names of datasets, models and groups of these in the configuration's order."""
    groups = [{"name": group.name, "models": list(group.models)} for group in section.groups]
    names = {"datasets": list(shared.datasets), "models": list(shared.models)}
    controls = [name for name, model in shared.models.items() if is_positive_control(model.source)]
    return {**names, "model_groups": groups, "positive_controls": controls}


def _about_table(
    graph: Graph,
    shared: Shared,
    section: InformationSection,
    content: Mapping[str, Any] | None = None,
    reads: Mapping[str, tuple[str, ...]] | None = None,
    **inputs: list[Product],
) -> Request:
    """Ask for the study's table, names in order, the words of probe families, and more."""
    table = graph.select("table", table="binding_information")
    # The words are in no code key: figures follow them here.
    families = {probe.family: list(probe.words(probe.family)) for probe in section.probes}
    # A list: names of models are no keys of a spec.
    sides = [
        {"name": name, "input_px": getattr(model, "input_px", None)}
        for name, model in shared.models.items()
    ]
    about = {"families": families, "input_sides": sides}
    content = {**_order(shared, section), **about, **(content or {})}
    return Request({"table": table, **inputs}, content, reads or {})


def _learning_curve(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
    if not graph.select("learning_curve"):
        return None
    table = graph.select("table", table="learning_curve")
    return Request({"table": table}, _order(shared, section))


def _cells(shared: Shared) -> dict[str, int]:
    """Return the number of possible objects per dataset."""
    return {
        name: prod(group.size for group in dataset.space.groups)
        for name, dataset in shared.datasets.items()
    }


def _several_layers(graph: Graph, shared: Shared) -> bool:
    """Whether a model was read at several layers."""
    layers: dict[str, set[str]] = {}
    for fit in graph.select("fit"):
        layers.setdefault(fit.wildcards["model"], set()).add(fit.wildcards["layer"])
    return any(len(names) >= FEWEST_POINTS for names in layers.values())


def _structure(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
    """Ask where plain targets of three families or protocols were fitted to one place."""
    probes = {probe.name: probe for probe in section.probes}
    fits = last_layer_fits(graph, shared)
    plain: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for fit in fits:
        probe = probes[fit.wildcards["probe"]]
        if "plain" in probe.targets and not probe.patches:
            place = tuple(fit.wildcards[name] for name in ("dataset", "model", "tokens"))
            plain.setdefault(place, set()).add((probe.family, probe.protocol))
    if not any(len(families) >= FEWEST_POINTS for families in plain.values()):
        return None
    compared = [fit for fit in fits if probes[fit.wildcards["probe"]].family in (PLAIN, SHARED)]
    content = {"information": section.information.model_dump(mode="json")}
    return _about_table(graph, shared, section, content, {"fits": ("details",)}, fits=compared)


def _tokens(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
    """Ask where a model was read with several probes, or from several token inputs."""
    bars: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for fit in last_layer_fits(graph, shared):
        dataset, model, *bar = (
            fit.wildcards[name] for name in ("dataset", "model", "probe", "tokens")
        )
        bars.setdefault((dataset, model), set()).add((bar[0], bar[1]))
    several = any(len(of_model) > 1 for of_model in bars.values())
    return _about_table(graph, shared, section) if several else None


def _training(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
    if not (fits := last_layer_fits(graph, shared)):
        return None
    return Request(
        {"training": graph.select("training"), "fits": fits},
        _order(shared, section),
        {"training": ("history",), "fits": ("history",)},
    )


def _breakdown(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
    if not (fits := last_layer_fits(graph, shared)):
        return None
    names = {fit.wildcards["dataset"]: shared.datasets[fit.wildcards["dataset"]] for fit in fits}
    content = {"groups": {name: value_names(dataset) for name, dataset in names.items()}}
    details = dict.fromkeys(("fits", "nulls"), ("details",))
    return _about_table(
        graph, shared, section, content, details, fits=fits, nulls=graph.select("null")
    )


def _several(graph: Graph, shared: Shared, value: Callable[[Dataset], float | None]) -> bool:
    """Whether a model is read on datasets that differ in a value, of those that have it."""
    values: dict[str, set[float | None]] = {}
    for fit in last_layer_fits(graph, shared):
        space = value(shared.datasets[fit.wildcards["dataset"]])
        values.setdefault(fit.wildcards["model"], set()).add(space)
    return any(len(space - {None}) > 1 for space in values.values())


def _complexity(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
    """Compare spaces of one kind that differ in their size, the commonest kind of the run."""
    kinds = Counter(dataset.space.kind for dataset in shared.datasets.values())
    kind = kinds.most_common(1)[0][0]
    cells = {n: k for n, k in _cells(shared).items() if shared.datasets[n].space.kind == kind}
    several = _several(graph, shared, lambda dataset: cells.get(dataset.name))
    return _about_table(graph, shared, section, {"cells": cells}) if several else None


def _resolution(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
    names = {name for family in section.families for name in family.models}
    fits = [fit for fit in last_layer_fits(graph, shared) if fit.wildcards["model"] in names]
    indexes = {fit.inputs["index"][0].path(): fit.inputs["index"][0] for fit in fits}
    if not indexes:
        return None
    # A list: the spec does not keep the order of a mapping, which the figure's curves follow.
    families = [{"name": f.name, "models": list(f.models)} for f in section.families]
    content = {"families": families, "cells": _cells(shared)}
    return _about_table(graph, shared, section, content, indexes=list(indexes.values()))


def _occlusion(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
    statistics = graph.select("table", table="scene_statistics")
    if not statistics or not _several(graph, shared, _camera_height):
        return None
    return _about_table(graph, shared, section, {"cells": _cells(shared)}, statistics=statistics)


def _camera_height(dataset: Dataset) -> float | None:
    render = dataset.render
    return render.camera_height if isinstance(render, SolidsRenderer) else None


def _natural(graph: Graph, shared: Shared, section: InformationSection) -> Request | None:
    """Datasets of natural images are those that are read, CLEVR's drawn ones left out."""
    natural = [
        name
        for name, dataset in shared.datasets.items()
        if dataset.source and not isinstance(dataset.source, ClevrSource)
    ]
    measured = {fit.wildcards["dataset"] for fit in last_layer_fits(graph, shared)}
    if not measured & set(natural):
        return None
    priors = graph.select("table", table="priors")
    content = {"natural": natural, "cells": _cells(shared)}
    return _about_table(graph, shared, section, content, priors=priors)


_figure = partial(FigureEntry.build, _HERE)

STUDY = Study(
    name="binding_information",
    title="Binding information",
    section=f"{_HERE}.config:InformationSection",
    problems=problems,
    products=add_products,
    steps=STEPS,
    tables=(
        TableEntry("binding_information", f"{_HERE}.tables:BINDING_INFORMATION", _binding_table),
        TableEntry(
            "attention", f"{_HERE}.tables:ATTENTION", _products_of("attention", "maps", "share")
        ),
        TableEntry(
            "learning_curve",
            f"{_HERE}.tables:LEARNING_CURVE",
            _products_of("learning_curve", "curves"),
        ),
    ),
    figures=(
        _figure(
            "figures.parts:parts",
            "Features, counts and pairing by model",
            "Bits per scene in the last layer, by part. Box: entropy; bar: what the probe decodes "
            '(of several, the best by validation), a lower bound ("≥")'
            "{hatched|; hatched: scene distribution unknown, no bound}."
            "{training seed| Dots: training seeds; line: 95 % t interval over them (pairing).} "
            "Lines across: baselines of the images. A model that only counts "
            "fills every box but the last.",
            _table_where(last_layer_fits),
            narrow="parts_narrow",
        ),
        _figure(
            "figures.parts:parts_narrow",
            "Features, counts and pairing by model, for a narrow screen",
            "As the figure of features, counts and pairing by model, a panel per part: box: "
            "entropy; bar: what the probe decodes in the last layer, a lower bound; dots and "
            "lines: training seeds and 95 % intervals over them.",
            _table_where(last_layer_fits),
        ),
        _figure(
            "figures.parts:parts_layers",
            "Features, counts and pairing by layer",
            "Fraction of each part that the probe (of several, the best by validation) decodes "
            "from each layer, a lower bound. Layers: outputs of blocks; 0 is the input of the "
            "first.{training seeds| Dots: training seeds; bands: 95 % intervals over them; a model "
            "with its own name is one seed.} Features above pairing: features are "
            "decodable, their pairing less.",
            _table_where(lambda *run: _several_layers(*run) and last_layer_fits(*run)),
        ),
        _figure(
            "figures.truth:histogram",
            "Binding information in counts and in color histograms",
            "Fraction beta* of binding information (counts and pairing). Orange: counts alone, "
            "H(M|F) / H(O|F). Green: a color histogram of the images, exact (solid) or decoded by "
            "a linear probe (dotted, a lower bound). Stars: published values"
            "{this run's probe|; circles: the paper's formula on comparable probes of this "
            "run}. Values left of a line are no evidence of pairing. No intervals.",
            _table_where(lambda graph, shared: graph.select("fit")),
            *_PAPERS,
        ),
        _figure(
            "figures.bars:tokens",
            "Object information by token input and probe",
            "Bits per scene about the objects in the last "
            "layer, by token input and probe. Bars: lower bounds; lines: 95 % intervals over "
            "{training seeds|training seeds for groups, else over }test scenes; H(O): all there "
            "is{paper's formula|. Diamonds: the binding problem paper's formula, H(O) \u2212 CE; "
            "crosses: the same without a representation}{published value|; stars: published values,"
            " hollow if protocol or input differ}.",
            _tokens,
            _PUBLISHED,
        ),
        _figure(
            "figures.curves:layers",
            "Binding information by layer",
            "Fraction of binding information (counts and pairing) decoded from each layer. Solid: "
            "lower bounds{paper's formula|; dashed: the binding problem paper's formula, no bound}."
            " Bands: 95 % intervals over {training seeds|training seeds for groups, else over }"
            "test scenes; a model with its own name is one seed.{after the last norm| "
            "Open markers: after the last norm.} Where a solid line rises, the probe can decode "
            "it.",
            _table_where(_several_layers),
        ),
        _figure(
            "figures.attention:attention",
            "Attention of the probe by object",
            "Left: a scene with five objects outlined. Then: the attention weights of the probe's "
            "query for each of them, darker for more. Below: the fraction of a query's weight on "
            "patches of its own object, mean, median and quartiles over objects of the stored test "
            "scenes (no intervals); crosses: uniform. Weights show what the probe uses, not the "
            "model.",
            _products_of("attention", "maps", "share", in_order=True),
        ),
        _figure(
            "figures.structure:structure",
            "Test loss by probe family",
            "Test loss of the objects by probe family, last layer. Lines: 95 % intervals over test "
            "scenes; dots: probe seeds; circles: the family without a representation; dashed: H(O)"
            "{published value|; stars: published values, hollow if protocol or input differ}. "
            "Compare distances from circle to marker. What a quadratic probe gains over a linear "
            "one is stored as products of features.",
            _structure,
            _PUBLISHED,
        ),
        _figure(
            "figures.training:training",
            "Training and validation losses",
            "Losses during training.{models: training loss| First row, of models trained in this "
            "run: their objective, on training (thin) and validation scenes (thick).} Of probes: "
            "validation loss on the last layer, in bits per scene; the linear family's ridge "
            "strengths follow one another. A curve that still falls at its end has not "
            "converged. Single fits, without intervals.",
            _training,
        ),
        _figure(
            "figures.training:learning_curve",
            "Decoded bits by number of training scenes",
            "Bits decoded from the test scenes by the same probe, fitted to more and more training "
            "scenes, by part. Solid: lower bounds, 95 % intervals over test "
            "scenes; dotted: entropy; dashed: fitted asymptote, no bound. "
            "A line that still rises means that more training scenes would decode more.",
            _learning_curve,
        ),
        _figure(
            "figures.breakdown:breakdown",
            "Decoded bits by feature group",
            "Bits per scene that a probe saves over the scene distribution, added up over the "
            "values of each feature group, and over objects beyond the features. Boxes: bits "
            "without a representation. Means over test scenes, without intervals. Compare models "
            "within a column.{\u2212| Negative: worse than the distribution alone.}",
            _breakdown,
        ),
        _figure(
            "figures.truth:calibration",
            "Estimates against known truth",
            "Planted encoders whose binding information is known exactly. Above: estimate against "
            "truth; below: error (estimate minus truth) by encoder. Filled: lower bounds, which "
            "may lie below the truth but not above it beyond sampling error; open: the binding "
            "problem paper's formula, no bound. Means over probe seeds, without intervals.",
            _table_where(
                lambda graph, shared: not all(m.sees_images for m in shared.models.values())
            ),
        ),
        _figure(
            "figures.curves:complexity",
            "Binding information by number of possible objects",
            "Binding information (counts and pairing) against the number of possible objects, as a "
            "fraction of H(O|F) (left) and in bits (right; dotted: H(O|F)). Solid: lower bounds "
            "with 95 % intervals over test scenes; dashed: the binding problem paper's formula; "
            "dash-dotted: counting only. Values at or below the dash-dotted line need no pairing.",
            _complexity,
            _TRENDS,
        ),
        _figure(
            "figures.curves:resolution",
            "Binding information by image size",
            "Binding information (counts and pairing) against the side of the input image, as a "
            "fraction of H(O|F) (left) and in bits (right; dotted: H(O|F)). Solid: lower bounds "
            "with 95 % intervals over test scenes; dashed: the binding problem paper's formula; "
            "{published value|stars: its published values; }dash-dotted: counting only. Other "
            "sizes use interpolated position embeddings.",
            _resolution,
            _TRENDS,
        ),
        _figure(
            "figures.curves:occlusion",
            "Binding information by occlusion",
            "Binding information (counts and pairing) as a fraction of H(O|F), against the "
            "camera's height (left) and the hidden fraction of an object's pixels (right). Solid: "
            "lower bounds with 95 % intervals over test scenes; dashed: the binding problem "
            "paper's formula{published value|; hollow stars: its published values}. Each point has "
            "its own scenes. Falling lines mean that occlusion costs binding.",
            _occlusion,
            _TRENDS,
        ),
        _figure(
            "figures.bars:natural",
            "Binding information in natural images",
            "Binding information (counts and pairing) in imported images, last layer. Bars: lower "
            "bounds with 95 % intervals over test scenes; diamonds: the binding problem paper's "
            "formula; squares: the same with that paper's prior"
            "{published value|; hollow stars: its published values}. Hatched: the scene "
            "distribution is unknown: entropies are estimated from the training split, and bars "
            "are no bounds.",
            _natural,
            _TRENDS,
        ),
    ),
    findings=f"{_HERE}.findings:chapter",
    examples={"matching": f"{_HERE}.examples:matching"},
    resources=(*_PAPERS, _INTRODUCTION),
)
