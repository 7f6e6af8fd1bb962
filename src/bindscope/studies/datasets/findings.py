"""The chapter of the report about the data themselves."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import Chapter, Column, Section, page_table


def _number(heading: str, source: str, form: str, explanation: str) -> Column:
    return Column(heading, source, "number", explanation, form)


ENTROPIES = (
    Column("dataset", "dataset"),
    Column("split", "split"),
    _number("H(O), bits", "h_object_bits", "z.2f", "entropy of the objects of a scene"),
    _number("H(F), bits", "h_feature_bits", "z.2f", "entropy of the features of a scene"),
    _number(
        "H(O|F), bits",
        "h_object_given_feature_bits",
        "z.2f",
        "entropy of the objects once the features are known",
    ),
    _number(
        "feature codes", "n_feature_codes", "d", "sets of features that occur in the split's scenes"
    ),
    _number(
        "split gap, bits",
        "split_gap_bits",
        "z.2f",
        "log2 of the sets of features that are possible over those that occur in the split; 0 for "
        "a random split",
    ),
    Column("method", "method"),
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what there is to know about the scenes, before any model is asked.

    Parameters
    ----------
    tables
        All tables of the run; `priors` is read.
    inputs
        Not used.
    """
    priors = tables["priors"]
    text = (
        "How many bits it takes to say which objects a scene has, O, and which features occur in "
        "it, F, per dataset and split. No model is involved. Method exact: counted in integers "
        "from the known distribution of the scenes. Method train_cross_entropy: the distribution "
        "was estimated from the train split, and the numbers are that estimate's cross-entropy "
        "on the split."
    )
    entropies = page_table("Entropies per dataset and split", ENTROPIES, priors)
    return Chapter(
        sections=(Section("entropies", "Entropies of the scenes", (text,), tables=(entropies,)),)
    )
