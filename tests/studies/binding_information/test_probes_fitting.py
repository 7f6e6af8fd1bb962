"""Whole fits: results, seeds, determinism, flags, null probes, protocols, weights."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from probe_problems import SIZES, heads, labelled, null, probe, problem, tokens_of

from bindscope.codes.space import feature_code
from bindscope.core.errors import ConfigError, StoreError
from bindscope.studies.binding_information.attention_maps import attention_maps
from bindscope.studies.binding_information.probes import convex
from bindscope.studies.binding_information.probes.base import TARGETS, Target, all_parts
from bindscope.studies.binding_information.probes.batches import make_source
from bindscope.studies.binding_information.probes.data import ProbeData, SplitData
from bindscope.studies.binding_information.probes.fitting import _flags, fit
from bindscope.studies.binding_information.probes.protocols import one_cycle
from bindscope.studies.binding_information.probes.runs import start, unfitted_bits
from bindscope.studies.binding_information.probes.weights import load_probe, rebuild, to_safetensors

FAST = {"steps": 5, "batch_size": 64}  # of a cycle; a fit takes 40 at most
K, N_FEATURES = 12, 7
H_OBJECT = K * 0.8113  # bits of rate 1/4


def fitted(name, seeds=(0,), data=None, **fields):
    data = data or problem(tokens=tokens_of(name))
    return fit(probe(name, **({**FAST, **fields})), data, seeds)


def bits_of(result, target):
    return float(result.head_losses[target].sum())


def target_of(name):
    return Target(name, SIZES)


@pytest.mark.parametrize("name", ["quadratic_reuse", "attention_quadratic"])
def test_a_result_holds_what_the_contract_says(name):
    (result,) = fitted(name, seeds=(5,))
    assert result.seed == 5
    assert set(result.losses) == {part.name for part in all_parts(SIZES)}
    assert set(result.head_losses) == set(TARGETS)
    for target in map(target_of, TARGETS):
        heads = result.head_losses[target.name]
        scenes = sum(result.losses[part.name] for part in target.parts)
        for losses, length in ((heads, target.parts[-1].length), (scenes, 80)):
            assert losses.shape == (length,)
            assert losses.dtype == np.float64
            assert np.isfinite(losses).all()
            assert losses.min() >= 0
        assert heads.sum() == pytest.approx(scenes.mean())
    assert result.val_loss_bits["chained"] == pytest.approx(
        result.val_loss_bits["chained_feature"] + result.val_loss_bits["chained_object"]
    )
    assert {f"{m}_{t}" for m in ("accuracy", "exact_match") for t in ("object", "feature")} == set(
        result.shares
    )
    assert all(0 <= share <= 1 for share in result.shares.values())
    assert result.feature_probe == ("quadratic" if name.endswith("_reuse") else name)
    assert set(TARGETS) <= set(result.target_flags)
    assert result.flags == tuple(sorted(set().union(*result.target_flags.values())))
    json.dumps([result.metadata, result.history], allow_nan=False)
    for row in result.history:
        assert set(row) == {"seed", "target", "step", "split", "loss_bits"}
        assert row["seed"] == 5
    in_history = {(row["target"], row["split"]) for row in result.history}
    assert {(target, split) for target in TARGETS for split in ("train", "val")} <= in_history
    assert all(value.dtype == np.float32 for value in result.weights.values())


@pytest.mark.parametrize("name", ["linear", "quadratic"])
def test_a_seed_does_not_depend_on_its_block(name):
    """History and records too; losses and weights of every family in `check_probe`."""
    block = fitted(name, seeds=(0, 1))
    (alone,) = fitted(name, seeds=(1,))
    assert alone.history == block[1].history
    assert alone.metadata == block[1].metadata
    for target in TARGETS:
        assert np.array_equal(alone.head_losses[target], block[1].head_losses[target])
    if name != "linear":
        assert block[0].metadata["best_step"]["object"]  # else both are the linear optimum
        assert not np.array_equal(block[0].losses["object"], block[1].losses["object"])


def mixture(result, target, losses, bits, anchors):
    """Losses of the mixture of each part with its prior, bits, by products of probabilities."""
    losses = losses.copy()
    for part in target.parts if anchors is not None else ():
        heads, weight = slice(part.first, part.length), result.metadata["prior_weights"][part.name]
        probe = np.exp2(-losses[:, heads]).cumprod(1)
        prior = (1 / (1 + np.exp((1 - 2.0 * bits[:, heads]) * anchors[:, heads]))).cumprod(1)
        both = np.hstack([np.ones((len(bits), 1)), (1 - weight) * probe + weight * prior])
        losses[:, heads] = -np.diff(np.log2(both), axis=1)
    return losses


@pytest.mark.parametrize("name", ["quadratic_reuse", "attention_quadratic"])
def test_the_reported_probe_is_the_saved_probe(name, tmp_path):
    """Of every target and two seeds; of one target and every family in `check_probe`."""
    data = problem(tokens=tokens_of(name))
    results = fitted(name, seeds=(0, 3), data=data)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(to_safetensors(results))
    for result in results:
        loaded, test = load_probe(path, result.seed), data.test
        z, cls = test.z, test.cls
        for target in map(target_of, TARGETS):
            bits, anchors = labelled(target, test)
            logits = loaded.logits(target.name, z, bits, anchors, cls)
            losses = np.logaddexp(0, (1 - 2.0 * bits) * logits) / np.log(2)
            losses = mixture(result, target, losses, bits, anchors)
            reported = sum(result.losses[part.name] for part in target.parts)
            np.testing.assert_allclose(reported, losses.sum(1), rtol=1e-4, atol=1e-5)
            reported = result.head_losses[target.name]
            np.testing.assert_allclose(reported, losses.mean(0), rtol=1e-4, atol=1e-5)
            if target.name in ("object", "feature"):
                right = (logits > 0) == bits
                shares = result.shares
                assert shares[f"accuracy_{target.name}"] == pytest.approx(right.mean())
                assert shares[f"exact_match_{target.name}"] == pytest.approx(right.all(1).mean())
    assert load_probe(path).config == probe(name, **FAST)
    with pytest.raises(StoreError, match="no probe of seed 9"):
        load_probe(path, 9)


def test_the_weights_file_is_the_same_every_time():
    results = fitted("quadratic", seeds=(0, 1, 2), steps=2)
    assert len({to_safetensors(results) for _ in range(8)}) == 1


def test_a_loaded_probe_asks_for_what_it_needs(tmp_path):
    data, path = problem(tokens=4), tmp_path / "weights.safetensors"
    path.write_bytes(to_safetensors(fitted("attention_quadratic", data=data, steps=1)))
    loaded, z, cls = load_probe(path), data.test.z, data.test.cls
    with pytest.raises(StoreError, match="anchored"):
        loaded.logits("chained", z, data.test.objects, cls=cls)
    with pytest.raises(StoreError, match="CLS"):
        loaded.logits("object", z, data.test.objects)
    maps = attention_maps(loaded, z, cls, data.test.objects)
    assert maps.shape == (80, K, 4)
    np.testing.assert_allclose(maps.sum(2), 1, rtol=1e-5)
    path.write_bytes(to_safetensors(fitted("quadratic", steps=1)))
    with pytest.raises(StoreError, match="attention_quadratic"):
        attention_maps(load_probe(path), problem().test.z, None, data.test.objects)


@pytest.mark.parametrize("name", ["linear", "set"])
def test_a_null_probe_learns_nothing_which_is_no_collapse(name):
    data = null(problem(tokens=tokens_of(name)))
    (result,) = fitted(name, data=data)
    assert "collapsed" not in result.flags
    assert "diverged" not in result.flags
    assert bits_of(result, "object_anchored") == pytest.approx(H_OBJECT, abs=0.5)
    assert bits_of(result, "object") < K + 0.1


@pytest.mark.parametrize(
    ("name", "l2", "flags"),
    [
        ("quadratic", {}, {"collapsed"}),
        ("linear", {}, {"collapsed"}),  # as it starts, under the paper's protocol say
        ("linear", {"l2": [None]}, set()),  # its optimum, where validation preferred the prior
    ],
)
def test_a_probe_that_ignores_what_it_could_read_has_collapsed(name, l2, flags):
    data, config = problem(), probe(name)
    source = make_source(config, data)
    run = start(config, heads("object_anchored"), source.shape)
    for parameter in run.family.parameters():
        parameter.data.zero_()
    run.options |= l2
    run.best_loss = unfitted_bits(source, "val", run.heads)
    assert _flags(run, source, 64) == {"object_anchored": flags}


def test_a_fit_that_diverges_is_a_result_with_a_flag():
    (result,) = fitted("quadratic", learning_rate=1e4)
    assert "diverged" in result.flags
    assert np.isfinite(result.losses["object"]).all()
    assert all(np.isfinite(row["loss_bits"]) for row in result.history)
    for flags in result.target_flags.values():  # what was stopped has not converged either
        assert ("diverged" in flags) <= ("not_converged" in flags)


def test_a_probe_far_worse_than_no_probe_has_diverged():
    """The paper's protocol reads raw inputs: of this scale its loss stays far above the start's."""
    data = problem(noise=1.0)
    splits = {name: replace(part, z=1e4 * part.z) for name, part in data.splits.items()}
    (result,) = fitted("linear", data=ProbeData(**splits, sizes=SIZES), protocol="paper")
    assert "diverged" in result.target_flags["object"]


@pytest.mark.parametrize("name", ["linear", "quadratic"])
def test_the_test_split_decides_neither_flags_nor_mixtures(name):
    """One scene times 1e4, whose losses no longer mean a thing, and one that overflows."""
    data = problem(noise=1.0)
    z = data.test.z.copy()
    z[3] *= 1e4
    z[5] = 3e38
    (clean,), (broken,) = (
        fitted(name, data=replace(data, test=replace(data.test, z=values)))
        for values in (data.test.z, z)
    )
    for field in (
        "flags",
        "target_flags",
        "prior_weights",
        "control_coefficients",
        "val_loss_bits",
    ):
        assert getattr(broken, field) == getattr(clean, field), field
    assert broken.losses["object"][3] > 1e3
    for part, weight in broken.prior_weights.items():
        assert weight < 1
        excess = broken.losses[part] - broken.anchor_losses[part]
        assert excess.max() <= -np.log2(weight) + 1e-6  # of both scenes too
        others = np.delete(np.arange(80), [3, 5])
        np.testing.assert_array_equal(broken.losses[part][others], clean.losses[part][others])


def test_an_over_confident_probe_gains_by_the_mixture():
    """3 % of scenes in train, validation and test show another scene's code, without noise."""
    data = problem((600, 300, 300), noise=0.0, dim=24)
    rng, splits = np.random.default_rng(0), {}
    for name, part in data.splits.items():
        z, wrong = part.z.copy(), rng.random(part.n_scenes) < 0.03
        z[wrong] = part.z[rng.permutation(part.n_scenes)][wrong]
        splits[name] = replace(part, z=z)
    # It is fitted where there are no errors, and cannot foresee them.
    data = ProbeData(data.train, splits["val"], splits["test"], SIZES)
    (result,) = fitted("linear", data=data, targets=["anchored"])
    (weight,) = result.prior_weights.values()
    assert 1 / 301 < weight < 0.2
    bits, anchors = labelled(target_of("object_anchored"), data.test)
    logits = rebuild(result.metadata, result.weights).logits(
        "object_anchored", data.test.z, bits, anchors
    )
    alone = np.logaddexp(0, (1 - 2.0 * bits) * logits).sum(1) / np.log(2)
    assert result.losses["object_anchored"].mean() < alone.mean() - 0.1


def test_the_papers_probes_are_not_mixed():
    data = problem((600, 100, 100))
    (result,) = fitted("quadratic", data=data, protocol="paper", targets=["plain"])
    assert result.prior_weights == result.control_coefficients == {}
    probe = rebuild(result.metadata, result.weights)
    for name, bits in (("object", data.test.objects), ("feature", data.test.features)):
        logits = probe.logits(name, data.test.z, bits)
        losses = np.logaddexp(0, (1 - 2.0 * bits) * logits).sum(1) / np.log(2)
        np.testing.assert_allclose(result.losses[name], losses, rtol=1e-5)


def exclusive(n=(1200, 300, 300), dim=12, noise=0.1, seed=0):
    """Codes of which z says nothing but in products: z holds o_k xor a key, and the key, as +-1."""
    rng = np.random.default_rng(seed)
    splits = {}
    for name, count in zip(("train", "val", "test"), n, strict=True):
        objects = (rng.random((count, 12)) < 0.25).astype(np.uint8)
        key = rng.integers(0, 2, objects.shape)
        signs = np.concatenate([objects ^ key, key], axis=1) * 2.0 - 1
        z = (signs + noise * rng.normal(size=signs.shape)).astype(np.float32)
        features = feature_code(objects, SIZES)
        anchors = {
            "object": np.full(objects.shape, -np.log(3.0), np.float32),
            "feature": np.zeros(features.shape, np.float32),
            "object_given_feature": np.full(objects.shape, -np.log(3.0), np.float32),
        }
        splits[name] = SplitData(z, objects, features, anchors)
    return ProbeData(**splits, sizes=SIZES)


def test_a_fit_cut_short_has_not_converged_and_a_longer_one_has(monkeypatch):
    """And reads in products what a linear one cannot."""
    (short,) = fitted(
        "quadratic", data=exclusive(), steps=15, learning_rate=0.01, targets=["anchored"]
    )
    assert "not_converged" in short.target_flags["object_anchored"]
    assert short.steps == 8 * 15
    (long,) = fitted(
        "quadratic", data=exclusive(), steps=300, learning_rate=0.01, targets=["anchored"]
    )
    assert "not_converged" not in long.target_flags["object_anchored"]
    assert bits_of(long, "object_anchored") < 0.2 * H_OBJECT
    (linear,) = fitted("linear", data=exclusive(), targets=["anchored"])
    assert bits_of(linear, "object_anchored") > 0.95 * H_OBJECT
    monkeypatch.setattr(convex, "RIDGES", replace(convex.RIDGES, iterations=0))
    (linear,) = fitted("linear", data=problem((1000, 300, 300), 24, noise=0.0))
    assert "not_converged" in linear.target_flags["object"]


def test_a_run_ends_when_a_longer_fit_moves_nothing_and_others_go_on():
    data = exclusive()
    (result,) = fitted("quadratic", data=data, steps=120, learning_rate=0.03)
    last = {
        part.name: max(row["step"] for row in result.history if row["target"] == part.name)
        for part in all_parts(SIZES)
    }
    assert set(last.values()) <= {120, 240, 480, 960}
    assert len(set(last.values())) > 1
    assert result.steps == max(last.values())
    (nothing,) = fitted("quadratic", data=null(problem()), steps=60)
    anchored = {row["step"] for row in nothing.history if row["target"] == "object_anchored"}
    assert max(anchored) == 60  # nothing was gained: a second cycle would repeat the first


@pytest.mark.parametrize(
    ("targets", "names"),
    [(["chained"], {"chained"}), (["plain", "anchored"], {"object", "feature", "object_anchored"})],
)
def test_only_the_targets_that_are_asked_for_are_fitted(targets, names, tmp_path):
    (result,) = fitted("quadratic_reuse", targets=targets)
    assert result.feature_probe == "quadratic"  # whatever is fitted
    assert set(result.head_losses) == names <= set(result.target_flags)
    assert set(result.losses) == {part.name for name in names for part in target_of(name).parts}
    assert np.isnan(result.shares["accuracy_object"]) == ("plain" not in targets)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(to_safetensors([result]))
    assert set(load_probe(path).families) == set(result.losses)


def test_the_best_validation_weights_are_reported():
    data = problem((80, 200, 200), noise=2.0, dim=40)
    (result,) = fitted("dnn", data=data, steps=50, learning_rate=0.03)
    curve = [
        row["loss_bits"]
        for row in result.history
        if row["target"] == "object" and row["split"] == "val"
    ]
    assert result.val_loss_bits["object"] == pytest.approx(min(curve), abs=1e-5)
    assert min(curve) < max(curve) - 0.1


def test_the_rate_of_a_cycle_rises_and_falls():
    rates = np.array([one_cycle(step, 400) for step in range(400)])
    top = int(rates.argmax())
    assert rates[0] == pytest.approx(1 / 25)
    assert rates[top] == pytest.approx(1)
    assert np.all(np.diff(rates[: top + 1]) > 0)
    assert np.all(np.diff(rates[top:]) < 0)
    assert 0 < rates[-1] < 1e-3


def test_attention_and_vectors_are_not_confused():
    with pytest.raises(ConfigError, match="tokens: \\[patches\\]"):
        fitted("attention_quadratic", data=problem())
    with pytest.raises(ConfigError, match="tokens: \\[cls\\]"):
        fitted("quadratic", data=problem(tokens=3))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_named():
    with pytest.raises(ConfigError, match="device: cpu"):
        fitted("quadratic", device="cuda")


def test_data_of_unlike_shapes_are_refused():
    data = problem()
    with pytest.raises(StoreError, match="features of split val"):
        replace(data, val=replace(data.val, features=data.val.objects))
    with pytest.raises(StoreError, match="activations of split test"):
        replace(data, test=replace(data.test, z=data.test.z[:, :3]))
    broken = data.train.z.copy()
    broken[3, 2] = np.nan
    with pytest.raises(StoreError, match="not finite"):
        replace(data, train=replace(data.train, z=broken))
    anchors = {name: value for name, value in data.test.anchors.items() if name != "feature"}
    with pytest.raises(StoreError, match="absent"):
        replace(data, test=replace(data.test, anchors=anchors))


def test_shuffled_data():
    data = problem(tokens=3)
    shuffled, again = data.shuffled_labels(1), data.shuffled_labels(1)
    assert np.array_equal(shuffled.train.objects, again.train.objects)
    assert not np.array_equal(shuffled.train.objects, data.train.objects)
    assert shuffled.train.z is data.train.z
    assert isinstance(shuffled, ProbeData)
    rows = {row.tobytes() for row in np.hstack([data.train.objects, data.train.features])}
    mixed = np.hstack([shuffled.train.objects, shuffled.train.features])
    assert {row.tobytes() for row in mixed} == rows  # codes stay whole


def test_no_fit_ends_above_the_linear_one_it_holds():
    """Not even at a rate that spoils whatever it is given; `check_probe` tries another one."""
    data = problem((200, 100, 100), noise=1.0)
    (linear,), (richer,) = (
        fitted(name, data=data, **fields)
        for name, fields in (("linear", {}), ("quadratic", {"learning_rate": 10.0}))
    )
    for part, loss in richer.val_loss_bits.items():
        assert loss <= linear.val_loss_bits[part] + 1e-3, part


def test_a_set_of_tokens_is_more_than_its_mean():
    """Each token holds one bit as its sign times a random sign that it also holds."""
    rng, splits = np.random.default_rng(0), {}
    for name, count in (("train", 2500), ("val", 400), ("test", 400)):
        objects = (rng.random((count, 12)) < 0.25).astype(np.uint8)
        sign = rng.choice([-1.0, 1.0], objects.shape)
        tokens = np.stack([sign, sign * (2.0 * objects - 1)], axis=2).astype(np.float32)
        features = feature_code(objects, SIZES)
        anchors = {
            "object": np.full(objects.shape, -np.log(3.0), np.float32),
            "feature": np.zeros(features.shape, np.float32),
            "object_given_feature": np.full(objects.shape, -np.log(3.0), np.float32),
        }
        splits[name] = SplitData(tokens, objects, features, anchors)
    data = ProbeData(**splits, sizes=SIZES)
    fields = {"targets": ["anchored"], "hidden": 64, "summed": 64, "weight_decay": 0.01}
    (result,) = fitted("set", data=data, steps=200, batch_size=128, learning_rate=5e-3, **fields)
    start = next(row["loss_bits"] for row in result.history if row["split"] == "val")
    assert start > 0.95 * H_OBJECT  # [CLS] and mean, linear
    assert bits_of(result, "object_anchored") < 0.3 * H_OBJECT


def test_a_deep_family_reads_what_a_linear_one_cannot():
    fields = {"steps": 100, "batch_size": 128, "learning_rate": 0.01, "weight_decay": 1e-4}
    (deep,) = fitted("dnn", data=exclusive(), targets=["anchored"], **fields)
    assert bits_of(deep, "object_anchored") < 0.2 * H_OBJECT
