"""What may be done with scores and tokens: count objects, say which is further left, find again.

Each of these heads is asked of the scores of a quadratic probe, of the tokens alone, and of what
knows neither (the commonest answer, or the places of the patches). Heads of scores have no weights
but the three of counting: what they cannot do, the scores do not hold. Heads of tokens are ridge
regressions, their strength chosen on validation, or the cosine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from bindscope.fitting.generators import rng
from bindscope.studies.same_object.data import Block, PairData, Pairs
from bindscope.studies.same_object.geometry.estimates import Bootstrap, Floats, Row, ratio
from bindscope.studies.same_object.geometry.places import ridge
from bindscope.studies.same_object.geometry.scored import Bools, Labels, QuadraticWeights

FRAME = 23  # what a generator is for
SCORES, TOKENS = "scores", "tokens"
Splits = Mapping[str, PairData]  # train, val and test


def heads(
    splits: Splits,
    probe: QuadraticWeights,
    scores: NDArray[np.float32],
    alike: NDArray[np.float32],
    labels: Labels,
    copy_of: NDArray[Any],
    by: Bootstrap,
) -> Iterator[Row]:
    """Return the rows of all heads.

    Parameters
    ----------
    splits
        Patches of train, val and test.
    probe
        The fitted probe.
    scores, alike
        (n, M, M): logits of test, and the cosines of its tokens.
    labels, copy_of
        Of test; `copy_of` (n, M) is the instance of the exact copy, 0 = none.
    """
    yield from counting(splits, probe, by)
    yield from left_of(scores, centres_of_tokens(splits, probe), labels, by)
    yield from matching(scores, alike, labels, by)
    yield from copies(scores, alike, labels, copy_of, by)


def n_objects(block: Block) -> Tensor:
    """Return how many objects the valid patches of each image show, float32 (B,)."""
    there = block.valid & (block.instances != 0)
    equal = (block.instances[:, :, None] == block.instances[:, None, :]) & there[:, None, :]
    first = equal.int().argmax(2) == torch.arange(there.shape[1], device=there.device)
    return (first & there).sum(1).float()


def soft_count(scores: Tensor, valid: Tensor) -> Tensor:
    """Return sum_i 1 / sum_j p_ij of each image: how many objects where p is 0 or 1 and right.

    Parameters
    ----------
    scores, valid
        Logits (B, M, M) and which patches count, (B, M); a patch goes with itself.
    """
    p = scores.sigmoid() * valid[:, None, :]
    p.diagonal(dim1=1, dim2=2)[:] = 1.0
    return (valid / p.sum(2)).sum(1)


def _of_scores(block: Block, probe: QuadraticWeights) -> Tensor:
    soft = soft_count(probe.scores(block.x), block.valid)
    return torch.stack([soft, soft**2, block.valid.sum(1).float()], 1)


def _of_tokens(block: Block) -> Tensor:
    n = block.valid.sum(1, keepdim=True).float()
    mean = block.x.sum(1) / n.clamp_min(1)
    squares = block.x.square().sum(1) / n.clamp_min(1)
    return torch.cat([mean, squares, n], 1)


def _of_images(data: PairData, probe: QuadraticWeights) -> tuple[Tensor, dict[str, Tensor]]:
    """Return how many objects each image shows, and what heads read of it; of those with any."""
    truth, inputs = [], []
    for block in Pairs(data, probe.scaling, probe.norm).blocks():
        used = (n := n_objects(block)) > 0
        truth.append(n[used])
        inputs.append((_of_scores(block, probe)[used], _of_tokens(block)[used]))
    scores, tokens = (torch.cat(parts) for parts in zip(*inputs, strict=True))
    return torch.cat(truth), {SCORES: scores, TOKENS: tokens}


def counting(splits: Splits, probe: QuadraticWeights, by: Bootstrap) -> list[Row]:
    """Tell how many objects the sampled patches of an image show."""
    found = {name: _of_images(data, probe) for name, data in splits.items()}
    truth = {name: counts for name, (counts, _) in found.items()}
    told = {
        at: _regressed({name: inputs[at] for name, (_, inputs) in found.items()}, truth)
        for at in (SCORES, TOKENS)
    }
    values, counts = np.unique(truth["train"].numpy(), return_counts=True)
    commonest = torch.full_like(truth["test"], float(values[counts.argmax()]))
    told["commonest"] = commonest
    errors = [(value - truth["test"]).abs() for value in told.values()]
    errors[-1] = (truth["train"].median() - truth["test"]).abs()
    right = [(value.round() == truth["test"]).float() for value in told.values()]
    sums = torch.stack([torch.ones(len(commonest)), *right, *errors], 1).double().numpy()
    statistics = {("counting_accuracy", at): ratio(1 + i, 0) for i, at in enumerate(told)}
    statistics |= {("counting_error", at): ratio(4 + i, 0) for i, at in enumerate(told)}
    return by.rows(sums, statistics)


def _regressed(inputs: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> Tensor:
    """Return what the ridge regression that validates best says of test, (n,)."""
    train = inputs["train"]
    mean, scale = train.mean(0), train.std(0).clamp_min(1e-6)
    x = {name: (own - mean) / scale for name, own in inputs.items()}
    read_outs = ridge([(x["train"], truth["train"][:, None])])

    def told(name: str, read_out: tuple[Tensor, Tensor]) -> Tensor:
        return (x[name] @ read_out[0] + read_out[1])[:, 0]

    best = min(read_outs, key=lambda r: float((told("val", r) - truth["val"]).square().mean()))
    return told("test", best)


def own_centres(same: Bools, columns: NDArray[np.floating]) -> Floats:
    """Return the mean column of the patches of each patch's object, (n, M)."""
    weights = same.astype(np.float64)
    return _centres(weights, columns)


def _centres(weights: Floats, columns: NDArray[np.floating]) -> Floats:
    """Return weighted means of columns (n, M), of weights (n, M, M); 0 of no weight."""
    total = np.maximum(weights.sum(2), np.finfo(np.float64).tiny)
    found: Floats = np.einsum("nij,nj->ni", weights, columns.astype(np.float64)) / total
    return found


def centres_of_tokens(splits: Splits, probe: QuadraticWeights) -> Floats:
    """Return where tokens of test say that the centre of their object is, columns (n, M)."""
    pairs = [Pairs(splits[name], probe.scaling, probe.norm) for name in ("train", "val", "test")]

    def known(block: Block) -> tuple[Tensor, Tensor]:
        there = block.valid & (block.instances != 0)
        equal = block.instances[:, :, None] == block.instances[:, None, :]
        same = (equal & there[:, None, :]).numpy()
        centre = own_centres(same, block.positions[..., 1].numpy())
        return block.x[there], torch.from_numpy(centre)[there].float()[:, None]

    read_outs = ridge(known(block) for block in pairs[0].blocks())
    errors = np.zeros(len(read_outs))
    for x, centre in map(known, pairs[1].blocks()):
        errors += [float((x @ r[0] + r[1] - centre).square().sum()) for r in read_outs]
    weights, offset = read_outs[int(errors.argmin())]
    told = [(block.x @ weights + offset)[..., 0].numpy() for block in pairs[2].blocks()]
    return np.concatenate(told).astype(np.float64)


def left_of(
    scores: NDArray[np.float32], of_tokens: Floats, labels: Labels, by: Bootstrap
) -> list[Row]:
    """Tell of two patches of two things whose thing has its centre further left.

    From scores: the mean column of the image's patches, weighted by the probability that they are
    of the patch's object.
    """
    columns = labels.positions[..., 1].astype(np.float64)
    there = labels.valid & (labels.instances != 0)
    centre = own_centres(labels.same & there[:, None, :], columns)
    p = expit(scores.astype(np.float64)) * labels.valid[:, None, :]
    slots = np.arange(p.shape[1])
    p[:, slots, slots] = labels.valid
    sources = {SCORES: _centres(p, columns), TOKENS: of_tokens, "places": columns}

    def order(values: Floats) -> Floats:
        return np.sign(np.round(values[:, None, :] - values[:, :, None], 9))

    truth = order(centre)
    asked = labels.pairs_of(labels.things) & ~labels.same & (truth != 0)
    contrary = asked & (order(columns) != truth)
    told = [np.where(order(own) == 0, 0.5, order(own) == truth) for own in sources.values()]
    sums = np.stack(
        [(part * chosen).sum((1, 2)) for chosen in (asked, contrary)
         for part in (np.ones_like(truth), *told)], 1
    )  # fmt: skip
    n = 1 + len(sources)
    rows = {("left_of_accuracy", at): ratio(1 + i, 0) for i, at in enumerate(sources)}
    rows |= {("left_of_contrary", at): ratio(n + 1 + i, n) for i, at in enumerate(sources)}
    return by.rows(sums[sums[:, 0] > 0], rows)


def matching(
    scores: NDArray[np.float32], alike: NDArray[np.float32], labels: Labels, by: Bootstrap
) -> list[Row]:
    """Find an object again: patches of an image are dealt out to two frames at random.

    Of every patch of the first frame whose object and another one are in the second frame, the
    patch that scores highest there.
    """
    first = np.stack([rng(i, FRAME).random(labels.valid.shape[1]) < 0.5
                      for i in range(len(labels.valid))])  # fmt: skip
    there = labels.instances != 0
    queries = labels.valid & first & there
    candidates = (labels.valid & ~first)[:, None, :] & queries[:, :, None]
    apart = labels.positions[:, :, None] - labels.positions[:, None]
    near = -np.linalg.norm(apart.astype(np.float64), axis=-1)
    sources = {SCORES: scores, TOKENS: alike, "places": near}
    return by.rows(*_found_again(sources, labels.same, candidates, "matching_accuracy"))


def copies(
    scores: NDArray[np.float32],
    alike: NDArray[np.float32],
    labels: Labels,
    copy_of: NDArray[Any],
    by: Bootstrap,
) -> list[Row]:
    """Find the exact copy of a patch's object among all other objects of the image.

    What tells objects apart does not have to: a high share says that scores go by looks.
    """
    right = (copy_of[:, :, None] == labels.instances[:, None, :]) & (copy_of != 0)[:, :, None]
    candidates = (labels.valid[:, :, None] & labels.valid[:, None, :]) & ~labels.same
    sources = {SCORES: scores, TOKENS: alike}
    return by.rows(*_found_again(sources, right, candidates, "copy_matching_accuracy"))


def _found_again(
    sources: Mapping[str, NDArray[Any]], right: Bools, candidates: Bools, quantity: str
) -> tuple[Floats, dict[tuple[str, str], Any]]:
    """Sum over queries with right and wrong candidates whether the best one is right.

    Parameters
    ----------
    sources
        Scores (n, M, M) of query i and candidate j, by name.
    right, candidates
        bool (n, M, M).

    Returns
    -------
    Sums of the images with a query, and what is computed of them; of several best candidates each
    counts its share, and `chance` is the share of right ones among all.
    """
    hits, all_of = (right & candidates).sum(2), candidates.sum(2)
    asked = (hits > 0) & (hits < all_of)
    shares = [hits / np.maximum(all_of, 1)]
    for values in sources.values():
        open_to = np.where(candidates, values, -np.inf)
        best = candidates & (open_to == open_to.max(2, keepdims=True))
        shares.append((best & right).sum(2) / np.maximum(best.sum(2), 1))
    sums = np.stack([asked.sum(1), *((share * asked).sum(1) for share in shares)], 1).astype(float)
    names = ("chance", *sources)
    return sums[sums[:, 0] > 0], {(quantity, at): ratio(1 + i, 0) for i, at in enumerate(names)}
