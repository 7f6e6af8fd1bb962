"""Models whose repository brings Python of its own, for those who have read it."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from bindscope.core.errors import ModelError


def load(repo: str, revision: str, trust_remote_code: bool = False, **options: Any) -> nn.Module:
    """Load a model of the Hugging Face hub and run the Python in its repository.

    For ``source: python:bindscope.models.remote_code:load``; what is read of it, `modules` says.

    Parameters
    ----------
    repo, revision
        Repository, and the commit that was read: 40 hex digits.
    trust_remote_code
        Must be True.
    options
        More arguments of ``transformers.AutoModel.from_pretrained``.

    Raises
    ------
    ModelError
        If the code is not trusted, or the commit is not pinned.
    """
    if trust_remote_code is not True:
        raise ModelError(
            repo,
            "this source runs the repository's Python as you",
            "read that code, then set `options: {trust_remote_code: true}`",
        )
    if not re.fullmatch("[0-9a-f]{40}", revision):
        raise ModelError(
            repo,
            f"revision {revision!r} pins no commit: other code could run tomorrow",
            "set `options: {revision: <40 hex digits>}` to the commit that you read",
        )
    from transformers import AutoModel

    model: nn.Module = AutoModel.from_pretrained(
        repo,
        revision=revision,
        code_revision=revision,
        trust_remote_code=True,
        use_safetensors=True,
        **options,
    )
    return model
