"""The examples of the pages run as they are printed, and the printed numbers are right."""

import re
from pathlib import Path

import pytest
from codes_by_hand import PAPER, PAPER_SPLIT
from datasets_by_hand import dataset

from bindscope.priors.entropies import entropies

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["information.md", "natural_images.md"])
def test_examples_run(page):
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.S)
    assert "\nassert " in example  # it checks what it shows
    exec(compile(example, page, "exec"), {})


def test_the_table_of_entropies_is_right():
    text = (DOCS / "information.md").read_text()
    train, _, test = entropies(dataset(PAPER, PAPER_SPLIT))
    space = entropies(dataset(PAPER))[0]
    for name, row in [("space", space), ("train", train), ("val, test", test)]:
        cells = re.search(rf"^\| {name} \(\d+.*?\) (.*)\|$", text, flags=re.M).group(1)
        printed = [float(cell) for cell in cells.strip("| ").split("|")]
        keys = ("h_object_bits", "h_feature_bits", "h_object_given_feature_bits", "split_gap_bits")
        assert printed == pytest.approx([row[key] for key in keys], abs=5.01e-9)
