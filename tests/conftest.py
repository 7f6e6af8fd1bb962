"""Order of the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

# What takes longest starts first, so that no worker ends with it while the others wait.
FIRST = ("test_deaths", "test_reruns", "test_commands", "test_bad_input", "test_gates")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the slowest modules to the front; the order within a module stays."""
    place = {name: i for i, name in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(Path(item.path).stem, len(FIRST)))
