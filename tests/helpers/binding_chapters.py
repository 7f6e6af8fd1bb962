"""The chapter on binding information, of a table."""

from pathlib import Path

import yaml

from bindscope.config.seeds import write_out
from bindscope.core.interfaces import Inputs
from bindscope.studies.binding_information.findings import chapter
from bindscope.studies.binding_information.study import STUDY

ROOT = Path(__file__).parents[2]


CONFIG, _ = write_out(yaml.safe_load((ROOT / "config" / "config.yaml").read_text()))


RESOURCES = {
    "binding_information": str(ROOT / "resources/published/binding_information.csv"),
    "trends": str(ROOT / "resources/published/trends.csv"),
    "claims": str(ROOT / "resources/reference/claims.csv"),
    "histograms": str(ROOT / "resources/published/histograms.csv"),
    "color_cues": str(ROOT / "resources/reference/color_cues.csv"),
    "binding_information_introduction": str(ROOT / STUDY.resources[-1]),
}


def chapter_of(table, config=CONFIG):
    """Make the chapter out of a table."""
    return chapter({"binding_information": table}, Inputs(content=config, resources=RESOURCES))
