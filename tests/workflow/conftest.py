"""One undisturbed run of the CI preset, shared by the tests that look at it or copy it."""

from __future__ import annotations

import pytest
from harness import Clone


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone in which `config/presets/ci.yaml` has run; tests must not change it."""
    clone = Clone.make(tmp_path_factory.mktemp("finished") / "clone")
    clone.snakemake()
    return clone
