"""Load vision-language models of transformers from the hub's cache or a folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bindscope.config.models import Pretrained
from bindscope.core.devices import no_gpu
from bindscope.core.errors import ModelError
from bindscope.models.hf_adapter import from_files
from bindscope.models.stream import freeze
from bindscope.models.weights import LOCAL, UNREADABLE, resolve, unread
from bindscope.studies.binding_id.config import VisionLanguageModel
from bindscope.studies.binding_id.names import precision_of
from bindscope.studies.binding_id.tasks.images import LayoutImages
from bindscope.studies.binding_id.tasks.prompts import RELEASED_SPACES, Form, prompts
from bindscope.studies.binding_id.tasks.scenes import Pictures, Rule, draw_pairs, question
from bindscope.studies.binding_id.vlm.adapters import HuggingFace, cut
from bindscope.studies.binding_id.vlm.checks import (
    CHECKED,
    check_rotations,
    control_difference,
    record_difference,
    refuse_backbone,
)
from bindscope.studies.binding_id.vlm.engine import Options, VisionLanguageEngine
from bindscope.studies.binding_id.vlm.families import FAMILIES, refuse_family
from bindscope.studies.binding_id.vlm.prompts import answer_tokens, chat_turn, evened, refuse_turns


def adapt(where: str, model: Any, processor: Any, device: torch.device | str | None) -> HuggingFace:
    """Return the adapter of a model.

    ModelError for unknown families, wrong processors, and backbones that cannot be edited.
    """
    settings = getattr(model, "config", None)
    kind = getattr(settings, "model_type", type(model).__name__)
    if kind not in FAMILIES:
        blind = ", and this one has no image tokens" * (not hasattr(settings, "image_token_id"))
        raise refuse_family(where, kind, blind)
    adapter = FAMILIES[kind][1](where, model, processor, device)
    refuse_backbone(where, adapter.language)
    check_rotations(adapter)
    return adapter


log = logging.getLogger(__name__)
RELEASED_PAD = 3  # cells, of the paper's code
LINE_BREAKS = "\n\n"
"""What questions of all templates but `short` begin with (`Options.lead`)."""


def load_engine(
    config: VisionLanguageModel,
    weights: Path | None = None,
    *,
    device: str = "cpu",
    rule: Rule | None = None,
    form: Form | None = None,
) -> VisionLanguageEngine:
    """Load a model, frozen, as an engine.

    `weights` is the manifest of the rule that downloaded it; None for a `path:`, and to look in the
    cache. All words that a rule may draw are counted before the weights are read, and get equally
    many tokens (`vlm.prompts.evened`); without one, texts are somebody's own.

    InputError if words of the rule cannot be made to take equally many tokens, or an item is not
    one. ModelError if the device, the weights or the processor are missing or do not fit, or the
    architecture is not supported.
    """
    import transformers

    where = f"model {config.name} ({config.source})"
    if device != "cpu" and not torch.cuda.is_available():
        raise no_gpu(where)
    folder, kind, processor = _opened(config, weights, where)
    form = form or Form()
    paper = config.compat == "paper"
    options = Options(
        pad=RELEASED_PAD if paper else 0,
        border="official" if paper else "inside",
        answer="bare" if paper else "space",
        batch_size=config.batch_size or Options.batch_size,
        lead="" if form.template == "short" else LINE_BREAKS,
    )
    if rule is not None:
        form = _counted(form, paper, processor, kind, rule, options, where)
    precision = precision_of(config.precision, config.compat, device.partition(":")[0])
    model = from_files(
        getattr(transformers, FAMILIES[kind][0]),
        folder,
        where,
        dtype=getattr(torch, precision),
        attn_implementation=config.attention,
    )
    freeze(model, torch.device(device))
    adapter = adapt(where, model, processor, device)
    return VisionLanguageEngine(adapter, partial(prompts, form=form), options)


def hook_engine(
    where: str, model: Any, processor: Any, rule: Rule | None, batch_size: int
) -> VisionLanguageEngine:
    """Return a model that somebody has loaded as an engine; it stays where and as it is.

    Errors are those of `load_engine`; without a rule texts are somebody's own.
    """
    adapter = adapt(where, model, processor, None)
    form, options = Form(), Options(batch_size=batch_size, lead=LINE_BREAKS)
    if rule is not None:
        kind = model.config.model_type
        form = _counted(form, False, processor, kind, rule, options, where)
    return VisionLanguageEngine(adapter, partial(prompts, form=form), options)


def load(
    model: Mapping[str, Any], rule: Rule, weights: Path | None, device: str = "cpu"
) -> tuple[VisionLanguageEngine, Pictures]:
    """Load a model of a suite from its part of a specification, and draw the images it reads."""
    engine = load_engine(config_of(model), weights, device=device, rule=rule)
    check_rows(engine, rule)
    return engine, LayoutImages(rule.layout)


def check_rows(engine: VisionLanguageEngine, rule: Rule) -> None:
    """Measure by how much answers about some scenes differ from the model's own pass.

    ModelError if by more than rounding.
    """
    n = min(CHECKED, engine.options.batch_size)
    scenes = draw_pairs(rule, "test", n, seed=0).base
    questions = [question(scenes, role) for role in range(scenes.things)]
    state = engine.contexts(scenes, LayoutImages(rule.layout)(scenes))
    record_difference(engine, control_difference(engine, state, questions, scenes.item))


def config_of(model: Mapping[str, Any]) -> VisionLanguageModel:
    """Return a model's part of a job's specification as it stood in the configuration."""
    names = VisionLanguageModel.model_fields
    return VisionLanguageModel(**{name: model[name] for name in names if name in model})


def _counted(
    form: Form, paper: bool, processor: Any, kind: str, rule: Rule, options: Options, where: str
) -> Form:
    """Return a form in the model's own turns whose words take equally many tokens."""
    if paper:
        refuse_turns(processor, where)
        form = replace(form, spaces=RELEASED_SPACES)
    else:
        turn = chat_turn(processor, where, FAMILIES[kind][1].image_text)
        form = replace(form, turn=turn)
    tokenize = partial(cut, processor)
    answer_tokens(tokenize, where, rule.words("test").items, options.answer)
    form = evened(tokenize, where, form, rule)
    if more := sorted({word for (_, word), spaces in form.spaces.items() if spaces}):
        log.info("spaces before %s make words take equally many tokens", ", ".join(more))
    return form


def _opened(config: VisionLanguageModel, weights: Path | None, where: str) -> tuple[Path, str, Any]:
    """Return the folder of a model, its `model_type` and its processor; no weights are read."""
    import transformers

    resolved = resolve(Pretrained(name=config.name, source=config.source, n_layers=1), weights)
    try:
        settings = transformers.AutoConfig.from_pretrained(resolved.folder, **LOCAL)
    except UNREADABLE as error:
        raise ModelError(
            where,
            f"transformers does not read its configuration ({unread(error)})",
            f"use one of {', '.join(FAMILIES)}",
        ) from error
    if settings.model_type not in FAMILIES:
        raise refuse_family(where, settings.model_type)
    processors: Any = transformers.AutoProcessor
    try:
        processor = processors.from_pretrained(resolved.folder, **LOCAL)
    except UNREADABLE as error:
        raise ModelError(
            where,
            f"its processor cannot be read ({unread(error)})",
            "put the files of its processor and tokenizer beside config.json "
            "(`processor.save_pretrained`)",
        ) from error
    return resolved.folder, settings.model_type, processor
