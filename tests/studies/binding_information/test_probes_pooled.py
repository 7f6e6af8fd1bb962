"""The pooled quadratic family: products within patches, averaged, read by a convex fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from probe_problems import SIZES, heads, probe

from bindscope.fitting.generators import rng
from bindscope.studies.binding_information.probes.batches import make_source
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.probes.fitting import fit
from bindscope.studies.binding_information.probes.module import InputShape, PatchInputs, build

H_OBJECT = -12 * (0.25 * np.log2(0.25) + 0.75 * np.log2(0.75))
N = {"train": 2000, "val": 400, "test": 400}
BITS = dict(zip(range(12), np.ndindex(*SIZES), strict=False))


def patches_of_objects(*, paired: bool) -> ProbeData:
    """Draw scenes whose patches hold an object each, or the color of one and the shape of another.

    Objects are there independently, one patch for each that could be; the order of patches is
    random. A patch is one-hot of its color beside one-hot of its shape.
    """
    draw, splits = rng(5), {}
    color, shape = (np.array([BITS[k][g] for k in range(12)]) for g in range(2))
    for name, count in N.items():
        objects = (draw.random((count, 12)) < 0.25).astype(np.uint8)
        tokens = np.zeros((count, 12, sum(SIZES)), np.float32)
        for i, scene in enumerate(objects):
            there = np.flatnonzero(scene)
            partner = there if paired else draw.permutation(there)
            at = draw.permutation(12)[: len(there)]
            tokens[i, at, color[there]] = 1
            tokens[i, at, SIZES[0] + shape[partner]] = 1
        features = np.zeros((count, sum(SIZES)), np.uint8)
        for k, (c, s) in BITS.items():
            features[:, c] |= objects[:, k]
            features[:, SIZES[0] + s] |= objects[:, k]
        prior = np.full(objects.shape, -np.log(3.0), np.float32)
        anchors = {
            "object": prior,
            "feature": np.zeros(features.shape, np.float32),
            "object_given_feature": prior,
        }
        splits[name] = SplitData(tokens, objects, features, anchors)
    return ProbeData(**splits, sizes=SIZES)


def test_it_reads_which_features_share_a_patch_and_nothing_where_they_do_not() -> None:
    config = probe("pooled_quadratic", targets=["anchored"])
    (paired,) = fit(config, patches_of_objects(paired=True), [0])
    (apart,) = fit(config, patches_of_objects(paired=False), [0])
    (mean,) = fit(
        probe("pooled_quadratic", targets=["anchored"], components=1),
        patches_of_objects(paired=True),
        [0],
    )
    losses = {
        name: result.losses["object_anchored"].mean()
        for name, result in (("paired", paired), ("apart", apart), ("mean", mean))
    }
    assert losses["paired"] < 0.02 * H_OBJECT
    # Both know how often each color and shape is there; a random partner is the own shape at times.
    assert losses["apart"] == pytest.approx(losses["mean"], rel=0.2)
    assert losses["apart"] > 0.1 * H_OBJECT
    assert not set(paired.flags) & {"not_converged", "collapsed", "diverged"}


def test_products_are_those_of_whitened_components() -> None:
    data = patches_of_objects(paired=True)
    config = probe("pooled_quadratic", components=4)
    source = make_source(config, data)
    family = build(config, heads("object_anchored"), source.shape)
    family.learn(source)
    inputs = next(iter(source.split("train", N["train"]))).inputs
    assert isinstance(inputs, PatchInputs)
    tokens = inputs.patches.double().numpy()
    flat = tokens.reshape(-1, tokens.shape[2])
    variances, directions = np.linalg.eigh(flat.T @ flat / len(flat))
    components = tokens @ (directions[:, -4:] / np.sqrt(variances[-4:]))[:, ::-1]
    products = np.einsum("nti,ntj->nij", components, components) / tokens.shape[1]
    expected = np.concatenate([tokens.mean(1), products[:, *np.triu_indices(4)]], axis=1)
    measured = family.vector(inputs).numpy()
    # A component's sign is nobody's choice, so that of a product is not either.
    np.testing.assert_allclose(np.abs(measured), np.abs(expected), atol=2e-4)
    np.testing.assert_allclose(measured[:, sum(SIZES)].mean(), 1, atol=1e-4)


def test_components_that_do_not_vary_are_left_out() -> None:
    config = probe("pooled_quadratic", components=3)
    family = build(config, heads("object_anchored"), InputShape(3, False, 2))
    tokens = np.zeros((8, 2, 3), np.float32)
    tokens[:, :, 0] = rng(0).normal(size=(8, 2))

    class OneSource:
        shape = InputShape(3, False, 2)

        def split(self, name: str, batch: int):
            yield PatchInputs(torch.from_numpy(tokens), None), None, None

    family.learn(OneSource())
    assert torch.isfinite(family.basis).all()
    assert int(family.basis.any(dim=0).sum()) == 1
