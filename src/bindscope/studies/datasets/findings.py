"""The chapter of the report about the data themselves."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from bindscope.core.interfaces import Inputs
from bindscope.report.chapter import Chapter, Column, Section, page_table


def _bits(heading: str, source: str, explanation: str) -> Column:
    return Column(f"{heading}, bits", source, "number", explanation)


ENTROPIES = (
    Column("dataset", "dataset"),
    Column("split", "split"),
    _bits("H(O)", "h_object_bits", "entropy of the objects of a scene"),
    _bits("H(F)", "h_feature_bits", "entropy of the features of a scene"),
    _bits(
        "H(O|F)",
        "h_object_given_feature_bits",
        "entropy of the objects once the features are known",
    ),
    Column(
        "feature codes",
        "n_feature_codes",
        "number",
        "sets of features that occur in the split's scenes",
        "d",
    ),
    _bits(
        "split gap",
        "split_gap_bits",
        "log2 of the sets of features that are possible over those that occur in the split; 0 for "
        "a random split",
    ),
    Column("method", "method"),
)


def chapter(tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Chapter:
    """Say what is known of the scenes before any model is asked; see `core.interfaces.Findings`."""
    priors = tables.get("priors")
    if priors is None:  # a configuration without datasets
        return Chapter()
    text = (
        "Entropies of the objects O and the features F of a scene, by dataset and split, without "
        "a model. Method exact: counted from the known scene distribution. Method "
        "train_cross_entropy: cross-entropy on the split of a distribution estimated from the "
        "training split."
    )
    entropies = page_table("Entropies per dataset and split", ENTROPIES, priors)
    return Chapter(
        headline=("scenes",),
        sections=(Section("entropies", "Entropies of the scenes", (text,), tables=(entropies,)),),
    )
