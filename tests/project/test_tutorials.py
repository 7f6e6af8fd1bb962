"""The Python of each tutorial runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(Path("docs/tutorials").glob("*.md")), ids=lambda p: p.stem)
def test_a_tutorial_runs(page: Path) -> None:
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```", page.read_text())
    assert blocks
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "tutorial"})
