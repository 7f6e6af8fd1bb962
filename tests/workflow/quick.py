"""A preset with little of everything: the same kinds of things; its numbers mean nothing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bindscope.config.codes import Dataset
from bindscope.config.models import AnyModel, Controlled
from bindscope.config.root import Config
from bindscope.core.files import canonical_json
from bindscope.core.splits import SPLITS
from bindscope.studies.binding_id.config import TRAINED

SCENES = {"train": 64, "val": 32, "test": 32}
TRAINING_STEPS = 10
BATCH = 16
# Six steps are the fewest with one of each stage.
SHORT_TOY = {"steps": 6, "batch_size": BATCH, "gates": False}
PROBE_STEPS = 20
BOOTSTRAP_SAMPLES = 50
JOINED = {"pairing"}  # experiments on toys that `together` reads
CURVES = {"families", "groups"}
AXES = ("datasets", "models", "layers", "tokens", "probes", "controls")


def quick(config: Config) -> dict[str, Any]:
    """Return a configuration of the same kind of experiment that takes little time.

    At most `SCENES` scenes of a split, in one shard; at most `TRAINING_STEPS` and `PROBE_STEPS`
    (a linear probe is convex and keeps its own). The last dataset and model of every kind (`kind`)
    stands for all of it; the first kind has two, where there is a curve over it or a group. Each is
    fitted once, and so is the first and the last layer, not every combination. Probes, tokens,
    controls and figures stay.
    """
    config = without_embeddings(config)
    content = config.model_dump(mode="json", exclude_unset=True)
    kinds = {entry.name: kind(entry) for entry in (*config.datasets, *config.models)}
    used: set[str] = set()
    for name, section in content.get("studies", {}).items():
        full = getattr(config.studies, name)
        for probe, known in zip(
            section.get("probes", ()), getattr(full, "probes", ()), strict=True
        ):
            if probe["family"] != "linear" and hasattr(known, "steps"):
                probe["steps"] = min(known.steps, PROBE_STEPS)
        beside = {
            name for key in CURVES for entry in section.get(key, ()) for name in entry["models"]
        } | _not_drawn_again(config.datasets)
        stand_in: dict[str, str] = {}
        for key in {"fits", "learning_curves"} & set(section):
            few = []
            for block in section[key]:
                few += _each_once(_few(block, kinds, stand_in, beside))
            used |= {name for part in few for name in part["datasets"] + part["models"]}
            section[key] = few
        _little_of_what_is_drawn(section, {model.source for model in config.models})
        for key in CURVES & set(section):
            for entry in section[key]:
                entry["models"] = [name for name in entry["models"] if name in used]
            section[key] = [entry for entry in section[key] if len(entry["models"]) > 1]
        _few_samples(section, full)
        for key in {"datasets", "models"} & set(section):  # it joins what those before it fit
            section[key] = [name for name in section[key] if name in used]
        for entry in section.get("uses", ()):
            entry["models"] = [name for name in entry["models"] if name in used]
        for entry in section.values():  # of fits that there are: their stand-ins
            if isinstance(entry, dict) and {"datasets", "models"} <= set(entry):
                for key in ("datasets", "models"):
                    entry[key] = [stand_in[kinds[entry[key][0]]]]
    content["models"] = [
        _short_training(listed, model)
        for listed, model in zip(content.get("models", ()), config.models, strict=True)
        if not used or model.name in used  # a zoo, whose models no study reads
    ]
    used |= {listed["training"]["dataset"] for listed in content["models"] if "training" in listed}
    content["datasets"] = [
        _few_scenes(listed, dataset)
        for listed, dataset in zip(content["datasets"], config.datasets, strict=True)
        if dataset.name in used
    ]
    return content


def _few_samples(section: dict[str, Any], full: Any) -> None:
    """Let a study resample little, and read scenes that there are."""
    for key in ("information", "intervals"):
        if hasattr(full, key):
            section.setdefault(key, {})["bootstrap_samples"] = BOOTSTRAP_SAMPLES
    if scenes := section.get("scenes"):
        section["scenes"] = {split: min(n, SCENES[split]) for split, n in scenes.items()}
    if "scenes" in (effects := section.get("effects", {})):
        effects["scenes"] = min(effects["scenes"], SCENES["test"])


def _little_of_what_is_drawn(section: dict[str, Any], models: set[str]) -> None:
    """Shorten what a study trains itself, and the rows of its tasks."""
    for entry in section.get("dual_encoders", ()):
        entry["seeds"], entry["coverages"] = [0], entry["coverages"][-1:]
        entry["training"] = {**entry["training"], "steps": TRAINING_STEPS}
    if "toys" in section:
        section |= _few_toys(section, models)
    for task in section.get("tasks", ()):
        task |= {"rows": BATCH, "estimation_rows": BATCH}


def _few_toys(section: dict[str, Any], models: set[str]) -> dict[str, Any]:
    """Return toys and suites with one stored toy, and one trained here of each objective.

    Those stay, too, whose images other studies read. Experiments are run on the first toy of a
    suite; on others the first one, and what a study joins (`JOINED`): what trained them differs,
    not a job's code.
    """
    ways = {
        toy.get("objective") if toy.get("source", TRAINED) == TRAINED else "stored": toy
        for toy in reversed(section["toys"])
    }
    toys = [
        toy for toy in section["toys"] if toy in ways.values() or f"toy:{toy['name']}" in models
    ]
    for toy in toys:
        if toy.get("source", TRAINED) == TRAINED:
            toy["training"] = SHORT_TOY  # 900 steps are the least that passes its gates
    names = {toy["name"] for toy in toys}
    suites: list[dict[str, Any]] = []
    for suite in section.get("suites", ()):
        first, *others = [name for name in suite.get("toys", ()) if name in names] or [None]
        suites.append({**suite, "toys": [first] if first else []})
        few = [name for name in suite["experiments"][1:] if name in JOINED]
        if others:
            part = {"name": f"{suite['name']}-others", "toys": others, "oracles": [], "models": []}
            suites.append({**suite, **part, "experiments": [suite["experiments"][0], *few]})
    return {"toys": toys, "suites": suites}


def without_embeddings(config: Config) -> Config:
    """Leave out analyses of embeddings of datasets, and all but one dual encoder.

    The default run has such analyses, of a model and a planted encoder, and unit tests
    (`test_concept_analyses`, `test_concept_towers`) run all their jobs without Snakemake.
    """
    section = config.studies.concepts
    if section is None or not section.analyses:
        return config
    first = section.dual_encoders[0]
    changes = {
        "planted": (),
        "dual_encoders": (first,),
        "analyses": tuple(
            entry.model_copy(
                update={
                    "dual_encoders": (first.name,),
                    "complexity": _one_approximator(entry.complexity),
                }
            )
            for entry in section.analyses
            if entry.dual_encoders
        ),
    }
    studies = config.studies.model_copy(update={"concepts": section.model_copy(update=changes)})
    return config.model_copy(update={"studies": studies, "datasets": (), "models": ()})


def _one_approximator(complexity: Any) -> Any:
    return complexity.model_copy(update={"approximators": complexity.approximators[:1]})


def kind(entry: Dataset | AnyModel) -> str:
    """Return what tells an entry from others of its section: all but its name and its numbers."""

    def blank(value: object) -> object:
        if isinstance(value, Mapping):
            return {key: blank(item) for key, item in value.items() if key != "name"}
        if isinstance(value, list):
            return [blank(item) for item in value]
        # Encoders of vectors, with or without a parameter, are one kind; the zoo and toys too.
        if isinstance(value, str):
            return re.sub(r"^(known-answer:)(?!token).*|^(zoo:|toy:).*|\d+", r"\1\2", value)
        return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value

    return canonical_json(blank(entry.model_dump(mode="json")))


def _not_drawn_again(datasets: Sequence[Dataset]) -> set[str]:
    """Return the datasets that differ from all others in more than name and seed."""
    nameless = [dataset.model_copy(update={"name": "any", "seed": 0}) for dataset in datasets]
    return {
        dataset.name
        for dataset, draw in zip(datasets, nameless, strict=True)
        if nameless.count(draw) == 1
    }


def _few(
    block: Mapping[str, Any],
    kinds: Mapping[str, str],
    stand_in: dict[str, str],
    beside: set[str],
) -> dict[str, Any]:
    """Return a block with what no block before it has, few layers and one block of seeds.

    `stand_in` has the name that stands for each kind, and is added to.
    """
    few, is_first = dict(block), not stand_in
    for key in ("datasets", "models"):
        named = sorted(block[key], key=lambda name: name in beside)
        last = {kinds[name]: name for name in named}
        new = [name for kind, name in last.items() if kind not in stand_in]
        stand_in |= {kinds[name]: name for name in new}
        few[key] = new or [stand_in[next(iter(last))]]
        first = few[key][0]
        others = [name for name in named if kinds[name] == kinds[first] and name != first]
        if is_first and others and {first, others[-1]} <= beside:
            few[key].insert(1, others[-1])
    if isinstance(layers := block.get("layers"), list) and len(layers) > 1:
        few["layers"] = list(dict.fromkeys([layers[-1], layers[0], layers[len(layers) // 2]]))
    if "seed_blocks" in block:
        few["seed_blocks"] = block["seed_blocks"][:1]
    return few


def _each_once(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield blocks that vary one axis each, the others at their first value."""
    axes = {axis: block[axis] for axis in AXES if isinstance(block.get(axis), list)}
    first = {axis: values[:1] for axis, values in axes.items()}
    varied = {axis: values for axis, values in axes.items() if len(values) > 1}
    for axis, values in (varied or first).items():
        yield {**block, **first, axis: values, "name": f"{block['name']}-{axis}"}
        if not varied:
            return


def _short_training(entry: Mapping[str, Any], model: object) -> dict[str, Any]:
    if not isinstance(model, Controlled):
        return dict(entry)
    steps, batch = min(model.training.steps, TRAINING_STEPS), min(model.training.batch_size, BATCH)
    return {**entry, "training": {**entry["training"], "steps": steps, "batch_size": batch}}


def _few_scenes(entry: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    few = {split: min(getattr(dataset.n_scenes, split), SCENES[split]) for split in SPLITS}
    return {**entry, "n_scenes": few, "shard_size": dict(few)}
