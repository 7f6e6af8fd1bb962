"""One case of a kind in `make test`, the others in `make test-whole`."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_of(cases: Iterable[Any], *chosen: Any) -> list[Any]:
    """Mark all cases of a parametrized test `whole`, but those that stand for them."""
    return [
        case if case in chosen else pytest.param(case, marks=pytest.mark.whole) for case in cases
    ]
