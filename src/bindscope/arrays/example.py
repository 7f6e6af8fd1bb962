"""Planted arrays with their labels and their truth, for first steps with the public functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bindscope.core.errors import InputError
from bindscope.core.registries import resolve, studies

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Example:
    """Arrays of planted representations, with labels and truth.

    Attributes
    ----------
    arrays
        Name of a representation -> float32, scenes first.
    objects
        A row per object: `scene`, then a column per feature group, or `segment` and `class`.
    truth
        Name of a representation -> what was planted in it, by quantity.
    space
        The scene distribution, as `binding_information` takes it; None where no function needs it.
    segments
        Object of each patch (N, T), as `same_object` takes it; likewise.
    """

    arrays: Mapping[str, Any]
    objects: pd.DataFrame
    truth: Mapping[str, Mapping[str, float]]
    space: Mapping[str, Any] | None = field(default=None)
    segments: Any = None


@dataclass(frozen=True, eq=False)
class ModelExample:
    """A planted model, with what it reads and its truth.

    Attributes
    ----------
    model, processor
        As `binding_ids` takes them.
    scenes
        What the model reads.
    truth
        What was planted, by quantity.
    """

    model: Any
    processor: Any
    scenes: Any
    truth: Mapping[str, Any]


def example(name: str, n: int | None = None, random_state: int = 0) -> Any:
    """Make planted arrays, or a planted model, with labels and truth.

    Parameters
    ----------
    name
        ``"matching"``: scenes for `binding_information`; ``"pairs"``: embeddings of pairs of
        objects for `concepts`; ``"clutter"``: patch tokens for `same_object`; ``"two-things"``: a
        model for `binding_ids`.
    n
        Number of scenes; default: enough for a run in seconds.
    random_state
        Seed.

    Returns
    -------
    Example or ModelExample
        Arrays by name, objects in a long table, and the truth; or the model, and what it reads.

    Raises
    ------
    InputError
        If there is no example of this name.

    Examples
    --------
    >>> import bindscope as bs
    >>> data = bs.example("matching", n=200)
    >>> {name: array.shape for name, array in data.arrays.items()}
    {'features': (200, 64), 'pairs': (200, 64)}
    >>> list(data.objects.columns)
    ['scene', 'color', 'shape']
    """
    makers = {key: ref for study in studies().values() for key, ref in study.examples.items()}
    if name not in makers:
        raise InputError(
            "bindscope.example",
            f"there is no example {name!r}",
            f"choose among {', '.join(makers)}",
        )
    if n is not None and n < 1:
        raise InputError("bindscope.example", f"n is {n}", "give a number of scenes")
    return resolve(makers[name])(n, random_state)
