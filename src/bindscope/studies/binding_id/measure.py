"""Binding IDs of a vision-language model that somebody has loaded: the study's public function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import ValidationError

from bindscope.arrays.example import ModelExample
from bindscope.arrays.result import Result
from bindscope.config.wording import instead
from bindscope.core.errors import InputError
from bindscope.studies.binding_id.config import (
    BindingIdSection,
    Oracle,
    ShapesTask,
    Suite,
    section_problems,
)
from bindscope.studies.binding_id.engine import Engine
from bindscope.studies.binding_id.oracle import OracleEngine
from bindscope.studies.binding_id.registry import EXPERIMENTS
from bindscope.studies.binding_id.suite import run
from bindscope.studies.binding_id.tasks.images import LayoutImages
from bindscope.studies.binding_id.tasks.records import PhotoRecord, parse_record, read_records
from bindscope.studies.binding_id.tasks.scenes import Rule

USUAL: Final = ("factorizability", "positions", "mean")
WHERE: Final = "bindscope.binding_ids"
ESTIMATION_SCENES: Final = 2  # for each tested one: mean differences are of these
_VIEW: Final = "bindscope.studies.binding_id.result_view:VIEW"
_NAME: Final = "call"
_FIXED: Final = ("name", "rows", "estimation_rows", "seed")  # of a task, given by other arguments
ScenesOrRecords = Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | Path | None


def binding_ids(
    model: Any,
    processor: Any,
    scenes: ScenesOrRecords = None,
    *,
    experiments: Sequence[str] = USUAL,
    n: int = 200,
    batch_size: int = 8,
    random_state: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> Result:
    """Measure how a vision-language model ties items of a text to objects of an image.

    The model reads an image of two objects and a text that gives each of them an item. Then
    activations of objects or items are replaced, moved or shifted, and it is asked which item
    belongs to which object.

    Parameters
    ----------
    model
        A vision-language model of transformers (LLaVA, Qwen-VL or InternVL) as you have loaded it,
        which is hooked, not copied; or an engine of `bindscope.example`.
    processor
        The processor of the model; None for an engine of `bindscope.example`.
    scenes
        Default: drawn scenes of two objects. A mapping: options of a task of the configuration,
        ``{"layout": "grid", "things": 3}``. Images of your own: a list of records (docs/arrays.md),
        or a file of them; what is measured then is what hiding each object costs.
    experiments
        Names of config/README.md (`studies.binding_id.suites[].experiments`).
    n
        Drawn scenes that are tested; mean differences are estimated on twice as many others. With
        100, a perfect model misses some claims.
    batch_size
        Scenes that the model reads at once.
    random_state
        Seed of scenes, random vectors and resamples.
    device
        Where the model is moved; ``"auto"``: it stays where it is.

    Returns
    -------
    Result
        A row per experiment, condition, question and answer, with the columns of docs/tables.md.

    Raises
    ------
    InputError
        If scenes, experiments or words do not fit the model or each other.
    ModelError
        If the model is of no known family, or does not belong to the processor.

    Examples
    --------
    >>> import bindscope as bs
    >>> data = bs.example("two-things")
    >>> result = bs.binding_ids(data.model, data.processor, data.scenes, n=20)
    >>> result.best["condition"], float(result.best["share"])
    ('O', 1.0)
    """
    if n < 2 or batch_size < 1:
        raise InputError(WHERE, f"`n` is {n}, `batch_size` {batch_size}", "give two scenes or more")
    if scenes is not None and not isinstance(scenes, Mapping):
        return _of_records(model, processor, scenes, experiments, batch_size, random_state, device)
    spec = _specification(scenes or {}, experiments, n, batch_size, random_state)
    return _measure_drawn(model, processor, spec, batch_size, device)


def _measure_drawn(
    model: Any, processor: Any, spec: dict[str, Any], batch_size: int, device: str
) -> Result:
    """Measure a model on scenes of a task."""
    rule = Rule.from_task(spec["task"])
    with _evaluating(model):
        engine = _engine(model, processor, rule, batch_size, device)
        rows = run(engine, LayoutImages(rule.layout), spec)
    return Result(rows, _VIEW, _notes(engine))


def _of_records(
    model: Any,
    processor: Any,
    scenes: Any,
    experiments: Sequence[str],
    batch_size: int,
    random_state: int,
    device: str,
) -> Result:
    """Measure what hiding the objects of somebody's own images costs."""
    from bindscope.studies.binding_id.tasks.photos import answer_all

    if tuple(experiments) not in (USUAL, ("records",)):
        raise InputError(
            WHERE,
            f"`experiments` is {', '.join(experiments)}, and images of your own have no "
            "second image with other objects in the same places, which these need",
            "leave `experiments` out: what hiding each object costs is measured",
        )
    records = _records(scenes)
    with _evaluating(model):
        engine = _engine(model, processor, None, batch_size, device)
        if not hasattr(engine, "adapter"):
            raise InputError(WHERE, "an oracle reads no images", "give a model of transformers")
        answers = answer_all(engine, records, Suite.model_fields["resamples"].default, random_state)
    notes = [
        "Images of your own: the question was made blind to all tokens of each object's box; "
        "replacing and adding activations needs drawn scenes."
    ]
    if lonely := sum(bool(np.isnan(each).any()) for each in answers.answers):
        notes.append(
            f"{lonely} questions have no control: no box as large shows none of the objects."
        )
    return Result({"binding_id": tuple(answers.rows)}, _VIEW, (*notes, *_notes(engine)))


def _records(scenes: Any) -> list[PhotoRecord]:
    if isinstance(scenes, str | Path):
        records = read_records(scenes)
    elif not isinstance(scenes, Iterable):
        raise InputError(
            WHERE,
            f"`scenes` is of type {type(scenes).__name__!r}",
            "give options of the task, records or their file; `n` is how many are drawn",
        )
    else:
        records = [
            parse_record(content, f"{WHERE}: scenes[{i}]") for i, content in enumerate(scenes)
        ]
    if len(records) < 2:
        raise InputError(
            WHERE, f"`scenes` holds {len(records)} of them", "give two or more, better dozens"
        )
    return records


def _specification(
    options: Mapping[str, Any],
    experiments: Sequence[str],
    n: int,
    batch_size: int,
    random_state: int,
) -> dict[str, Any]:
    """Return what a job of a suite would be given for this call."""
    for name in experiments:
        if name not in EXPERIMENTS:
            raise InputError(
                WHERE,
                f"there is no experiment {name!r}{instead(name, [*EXPERIMENTS])}",
                f"choose among {', '.join(EXPERIMENTS)}",
            )
    allowed = [name for name in ShapesTask.model_fields if name not in _FIXED]
    if unknown := sorted(set(options) - set(allowed)):
        raise InputError(
            WHERE,
            f"`scenes` has no option {unknown[0]!r}{instead(unknown[0], allowed)}",
            f"its options: {', '.join(allowed)}; for images of your own give a list of records",
        )
    try:
        task = ShapesTask(
            name=_NAME, rows=n, estimation_rows=ESTIMATION_SCENES * n, seed=random_state, **options
        )
        suite = Suite(
            name=_NAME,
            tasks=(_NAME,),
            oracles=(_NAME,),
            experiments=tuple(experiments),
            batch_size=batch_size,
            seed=random_state,
        )
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise InputError(WHERE, f"{where}: {problem['msg']}", "see config/README.md") from error
    oracle = Oracle(name=_NAME, mechanism="none")  # a section without models is refused
    section = BindingIdSection(tasks=(task,), oracles=(oracle,), suites=(suite,))
    for line in section_problems(section):
        raise InputError(WHERE, line.partition(": ")[2], "change `scenes` or `experiments`")
    return {**suite.model_dump(mode="json"), "task": task.model_dump(mode="json")}


def _engine(model: Any, processor: Any, rule: Rule | None, batch_size: int, device: str) -> Any:
    """Return the model as an engine; one of ours is one already."""
    if isinstance(model, Engine):
        return model
    from bindscope.studies.binding_id.vlm.loading import check_rows, hook_engine

    engine = hook_engine(WHERE, model, processor, rule, batch_size)
    if device != "auto":
        from bindscope.core.devices import no_gpu, visible_devices

        if device == "cuda" and not visible_devices():
            raise no_gpu(WHERE)
        model.to(device)
    if rule is not None:  # of records, the first ones are checked
        check_rows(engine, rule)
    return engine


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Let a model compute as in evaluation, and be as it was afterwards, whatever happens."""
    if not hasattr(model, "modules"):
        yield
        return
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    training = [module for module in model.modules() if module.training]
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    model.eval().requires_grad_(False)  # torch rounds otherwise where weights have gradients
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
        for module in training:
            module.training = True
        for weight in learning:
            weight.requires_grad = True


def _notes(engine: Any) -> tuple[str, ...]:
    """Say what kind of model it is, where it is no published one in float32."""
    if hasattr(engine, "mechanism"):
        return (
            f"The model is an oracle that binds by {engine.mechanism!r}: its numbers say nothing "
            "about a trained model.",
        )
    types = {
        str(weight.dtype).removeprefix("torch.") for weight in engine.adapter.model.parameters()
    }
    if types == {"float32"}:
        return ()
    note = f"The model computes in {', '.join(sorted(types))}"
    if engine.rounding is not None:
        note += (
            f": log-probabilities of control answers differ by up to {engine.rounding:.2g} nats "
            "between the two ways to compute them, behind a cache and in the model's own pass"
        )
    return (
        f"{note}. Load it in float32 for effects that are not much larger, such as those of single "
        "layers and heads.",
    )


def two_things(n: int | None, random_state: int) -> ModelExample:
    """Make an oracle that ties each item to the place of its object (`n` has no effect)."""
    truth = {"binds by": "slot", "objects swap": 1.0, "items swap": 1.0, "keys swap": 0.0}
    return ModelExample(OracleEngine("slot", seed=random_state), None, {"layout": "pair"}, truth)
