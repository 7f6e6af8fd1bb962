"""Edits of embeddings and removal of their parts (invariants 4 and 5)."""

import numpy as np
import pytest

from bindscope.core.errors import InputError
from bindscope.fitting.generators import rng
from bindscope.studies.concepts import planted_encoders as planted
from bindscope.studies.concepts.decomposition import nearest
from bindscope.studies.concepts.editing import (
    derangement,
    drawn_edits,
    edited,
    part_of,
    removal_rows,
    value_edits,
)
from bindscope.studies.concepts.recognition import Embedded, fit_probes
from bindscope.studies.concepts.scenes import Parts, Scenes
from bindscope.studies.concepts.vectors import SingleScenes, object_vectors

CLEVR = Scenes.all_of((8, 3))


def embedded_whole(z, scenes=CLEVR):
    """Fit probes to all scenes, as if none were held out."""
    every = np.arange(len(scenes))
    readout = fit_probes(z, scenes, every)
    return Embedded(z, scenes, readout, split_by="scenes", parts=Parts(*(every,) * 4))


def edits_of(encoder, scenes=CLEVR):
    z = planted.ENCODERS[encoder](scenes, planted.PlantedVectors(64, slot_effect=0.3))
    vectors = object_vectors(z, scenes, "avg_pos")
    rows = edited(embedded_whole(z, scenes), vectors, value_edits(scenes, 0), (0.0, 1.0))
    return {(row["strength"], row["measure"], row["stratum"]): row for row in rows}


def test_edits_change_one_value_to_one_that_the_scene_has_not():
    edits = value_edits(CLEVR, 0)
    assert len(edits.base) == 768
    for base, slot, old, new, target in zip(
        edits.base, edits.slots, edits.old, edits.new, edits.target, strict=True
    ):
        before, after = CLEVR.slots[base], CLEVR.slots[target]
        assert before[slot] == old
        assert after[slot] == new
        assert before[1 - slot] == after[1 - slot]
        (old_color, shape), (color, same) = CLEVR.values_of_objects[[old, new]]
        assert shape == same
        assert color not in CLEVR.values[base, :, 0]
        assert CLEVR.values[base, 0, 1] != CLEVR.values[base, 1, 1]
        assert old_color != color
    again, reseeded = value_edits(CLEVR, 0), value_edits(CLEVR, 0, seed=1)
    np.testing.assert_array_equal(edits.new, again.new)
    assert (edits.new != reseeded.new).any()


def test_counts_of_edits_in_the_papers_scenes():
    pug = Scenes.all_of((12, 8))
    pug = pug.take(~pug.shared)
    assert len(value_edits(pug, 0).base) == 14_784
    many = value_edits(Scenes.all_of((20, 20)), 0)
    assert len(many.base) == 304_000
    few = drawn_edits(many, 10_000)
    assert len(few.base) == 10_000 == len(np.unique(few.base * 2 + few.slots))
    np.testing.assert_array_equal(few.new, drawn_edits(many, 10_000).new)
    assert len(np.unique(few.old)) == 400
    edits = value_edits(CLEVR, 0)
    assert drawn_edits(edits, 10_000) is edits
    assert drawn_edits(many, None) is many


def test_additive_edits_find_the_real_scene_and_no_edit_finds_none():
    rows = edits_of("lookup")
    for stratum in ("all", "shared", "none"):
        assert rows[1.0, "retrieval_strict", stratum]["value"] == 1
        assert rows[0.0, "retrieval_strict", stratum]["value"] == 0
        assert rows[1.0, "object", stratum]["value"] >= 0.98
        assert rows[0.0, "object", stratum]["value"] == 0
    assert rows[1.0, "concept", "all"]["value"] == 1
    assert rows[1.0, "object", "shared"]["n_scenes"] == 96
    # Whatever is edited in shares no value afterwards: counting values would find no object.
    assert rows[1.0, "object", "shared"]["bag_of_concepts_floor"] == 0


def test_the_joint_hit_of_concepts_cannot_see_what_the_hit_of_objects_sees():
    rows = edits_of("additive")
    assert rows[1.0, "concept", "all"]["value"] == 1
    assert rows[1.0, "object", "all"]["value"] <= 0.5


def test_edits_without_a_vector_or_without_a_real_scene_are_skipped_and_counted():
    incomplete = CLEVR.take(np.arange(576) != 5)
    edits = value_edits(incomplete, 0)
    missing = int((edits.target < 0).sum())
    assert missing > 0
    rows = edits_of("lookup", scenes=incomplete)
    row = rows[1.0, "object", "all"]
    assert row["n_skipped"] == missing
    assert row["n_scenes"] == len(edits.base) - missing
    z = planted.lookup(CLEVR, planted.PlantedVectors(64))
    single = SingleScenes(z[1:24], np.arange(1, 24), np.full(23, -1))
    vectors = object_vectors(z, CLEVR, "single", single)
    all_edits = value_edits(CLEVR, 0)
    without = ((all_edits.old == 0) | (all_edits.new == 0)).sum()
    [first, *_] = edited(embedded_whole(z), vectors, all_edits, (1.0,))
    assert first["n_skipped"] == without > 0


def test_an_object_is_not_edited_where_no_value_remains_to_change_to():
    narrow = Scenes.all_of((2, 3))
    edits = value_edits(narrow, 0)
    both = np.ptp(narrow.values[:, :, 0], axis=1) == 1
    assert len(edits.base) > 0
    assert not both[edits.base].any()


def test_edits_of_every_strength_are_those_made_one_by_one():
    z = planted.global_product(CLEVR, planted.PlantedVectors(16))
    edits = value_edits(CLEVR, 0)
    vectors = object_vectors(z, CLEVR, "avg_pos")
    rows = edited(embedded_whole(z), vectors, edits, (0.5, 1.5))
    of_slot = vectors.table[edits.slots]
    each = np.arange(len(edits.base))
    change = of_slot[each, edits.new] - of_slot[each, edits.old]
    for row in rows:
        if row["measure"] == "retrieval_strict" and row["stratum"] == "all":
            hits = nearest(z[edits.base] + row["strength"] * change, z) == edits.target
            assert row["value"] == pytest.approx(hits.mean())


def test_a_derangement_moves_everything_and_every_one_is_as_likely():
    draws = [tuple(derangement(4, rng(seed))) for seed in range(3000)]
    assert all(place != i for draw in draws for i, place in enumerate(draw))
    _, counts = np.unique(draws, axis=0, return_counts=True)
    assert len(counts) == 9
    assert np.square(counts - 3000 / 9).sum() / (3000 / 9) < 26  # chi-squared, 8 degrees, 0.1 %
    with pytest.raises(InputError, match="one value"):
        derangement(1, rng(0))


def test_the_part_of_an_additive_embedding_is_all_of_it():
    z = planted.additive(CLEVR, planted.PlantedVectors(30, slot_effect=0.5))
    centered = z - z.mean(axis=0)
    np.testing.assert_allclose(part_of(z, CLEVR, "concept"), centered, atol=1e-6)
    np.testing.assert_allclose(part_of(z, CLEVR, "object"), centered, atol=1e-6)
    assert np.abs(part_of(z, CLEVR, "permuted_object") - centered).max() > 1


def test_removal_takes_what_it_says_and_its_controls_take_nothing_that_is_read():
    z = planted.lookup(CLEVR, planted.PlantedVectors(64, slot_effect=0.3))
    rows = [row for row in removal_rows(Embedded(z, CLEVR)) if row["stratum"] == "all"]
    assert not any("flags" in row for row in rows)
    value, chance = (
        {(row["variant"], row["measure"]): row[column] for row in rows}
        for column in ("value", "chance")
    )
    assert value["nothing", "object"] >= 0.99
    assert value["concept", "concept"] <= chance["concept", "concept"] + 0.05
    assert value["concept", "object"] >= 0.95
    assert value["object", "concept"] <= chance["object", "concept"] + 0.05
    assert value["object", "object"] <= 0.05
    for control in ("permuted_concept", "permuted_object"):
        assert value[control, "concept"] >= 0.95
        assert value[control, "object"] >= 0.95
    assert value["permuted_object", "explained"] < 0
