"""The Python of each tutorial runs as it is printed."""

import re
from pathlib import Path

import pytest
from representatives import one_of

PAGES = sorted(path.stem for path in Path("docs/tutorials").glob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("page", one_of(PAGES, "your_arrays"))
def test_a_tutorial_runs(page: str) -> None:
    blocks = re.findall(
        r"(?ms)^```python\n(.*?)^```", Path(f"docs/tutorials/{page}.md").read_text()
    )
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "tutorial"})
