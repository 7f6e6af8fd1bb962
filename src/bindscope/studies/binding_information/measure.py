"""Binding information of arrays that anybody made: no workflow, no files.

The same steps as the pipeline's, in one call: codes are split, their prior is counted, probes are
fitted by `probes.fitting.fit`, and `estimates.estimate` makes the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pydantic import TypeAdapter, ValidationError
from threadpoolctl import threadpool_limits

from bindscope.codes.space import feature_code
from bindscope.config.base import Model
from bindscope.config.codes import RandomSplit, SceneDistribution, Space
from bindscope.config.observed import CountedSpace
from bindscope.config.wording import instead
from bindscope.core.errors import InputError
from bindscope.core.splits import SPLITS
from bindscope.priors.anchors import anchors, clipped
from bindscope.priors.counted import CountedPrior, counted_entropies
from bindscope.priors.entropies import entropies
from bindscope.studies.binding_information.best import best_rows
from bindscope.studies.binding_information.columns import BINDING_COLUMNS
from bindscope.studies.binding_information.config import PATCH_FAMILIES, AnyProbe, Information
from bindscope.studies.binding_information.fit import fit_row, run_fit
from bindscope.studies.binding_information.measured import Measured
from bindscope.studies.binding_information.probes.data import ArrayPatches, ProbeData, SplitData
from bindscope.studies.binding_information.registry import FAMILIES
from bindscope.studies.binding_information.rules import flag_list

SHARES = (0.7, 0.1, 0.2)
FEWEST_SCENES = 50
MOST_REPEATED = 5.0  # standard errors by which test codes may occur in train too often
ARRAYS = "arrays"  # stands for the names of dataset and model
_WHERE = "bindscope.measure"
# Columns that only a run of the workflow can fill.
_OF_A_RUN = (
    "dataset", "model", "layer", "model_kind", "model_seed", "n_layers", "spec_key", "code_key",
)  # fmt: skip

Array = npt.NDArray[Any]
Bits = npt.NDArray[np.uint8]
Anchors = Mapping[str, Array]


@dataclass(frozen=True)
class _Labels:
    """Codes of all scenes, and what is known of them before a representation is seen.

    Attributes
    ----------
    objects, features
        uint8 (N, K) and (N, n).
    sizes
        Sizes of the feature groups.
    anchors
        Split -> prior log-odds of its scenes, in the order of `rows`, and their count bits.
    prior
        Entropies of the test split (a row of `priors.entropies`).
    rows
        Split -> its scenes.
    notes
        What contradicts the prior, in sentences.
    """

    objects: Bits
    features: Bits
    sizes: tuple[int, ...]
    anchors: Mapping[str, Anchors]
    prior: Mapping[str, Any]
    rows: Mapping[str, npt.NDArray[np.int64]]
    notes: tuple[str, ...] = ()


def measure(
    activations: Any,
    objects: Any,
    *,
    space: Mapping[str, Any] | Model | Sequence[int] | None = None,
    features: Any = None,
    cls: Any = None,
    probes: Sequence[str | Mapping[str, Any] | AnyProbe] = ("linear", "set"),
    seed: int = 0,
    shares: tuple[float, float, float] = SHARES,
    control: Literal["none", "shuffled_labels"] = "none",
    device: Literal["cpu", "cuda"] = "cpu",
    threads: int = 1,
) -> Measured:
    """Measure how many bits a representation holds about objects, and about what goes with what.

    Parameters
    ----------
    activations
        Floats (N, d), a vector per scene, or (N, T, d), its patch tokens; NumPy, torch, or
        whatever `numpy.asarray` reads.
    objects
        Object codes: 0 or 1 (N, K), K the product of the groups' sizes, the last group varying
        fastest; or the same as grids (N, size of group 1, size of group 2, ...).
    space
        How the scenes came about: a `space` section of the configuration, as a mapping or as an
        object of `bindscope.config.codes`; its `groups` may be a mapping of name to size. Where
        nobody knows, the groups' sizes, or nothing where `objects` are grids: the prior is then
        estimated from the train scenes, and each row has the flag `assumed_prior`.
    features
        Feature codes (N, n), if you have them: they must be those that follow from `objects`.
    cls
        With patch tokens: [CLS] tokens (N, d).
    probes
        Families, or probes as in the configuration (``{"family": "quadratic", "rank": 8}``). A
        family of patches is fitted on the patches, another one on the vectors, or on the mean of
        the patches and on [CLS].
    seed, shares
        Seed of the split and of the probes; shares of scenes in train, val and test.
    control
        `shuffled_labels` pairs scenes and labels at random: everything should read about 0.
    device, threads
        Where probes that are named by their family are fitted, and on how many threads of a CPU.

    Returns
    -------
    Measured
        A row per probe and token input, with the pipeline's columns in bits (docs/tables.md), and
        a row `best` per token input.

    Raises
    ------
    InputError
        If shapes do not belong together, values are not finite, codes are not 0 or 1 or lie
        outside the space, or no probe can read the activations.
    """
    z, cls_tokens = _tokens(activations, cls)
    labels = _labels(objects, features, space, len(z), seed, shares)
    chosen = [_probe(entry, device, threads) for entry in probes]
    return _measured(chosen, z, cls_tokens, labels, seed, control)


def _measured(
    chosen: Sequence[AnyProbe],
    z: Array,
    cls: Array | None,
    labels: _Labels,
    seed: int,
    control: str,
) -> Measured:
    """Fit every probe on every token input that it reads."""
    fitted = [
        _fitted(probe, _probe_data(labels, z, cls, tokens), labels, tokens, seed, control)
        for probe in chosen
        for tokens in _inputs(probe, z, cls)
    ]
    notes = tuple(
        f"{probe.name} was not fitted: it reads patch tokens (N, T, d)."
        for probe in chosen
        if not _inputs(probe, z, cls)
    )
    if not fitted:
        raise InputError(
            _WHERE, f"no probe can read activations {z.shape}. {' '.join(notes)}",
            'give patch tokens (N, T, d), or add "linear" to `probes`',
        )  # fmt: skip
    return Measured(_table(fitted, labels.prior), (*labels.notes, *notes))


def _tokens(activations: Any, cls: Any) -> tuple[Array, Array | None]:
    """Return vectors or patch tokens, and [CLS] tokens that fit them."""
    z = _floats(activations, "activations", (2, 3))
    if cls is None:
        return z, None
    if z.ndim != 3:
        raise InputError(
            _WHERE, f"`cls` goes with patch tokens (N, T, d), and activations are {z.shape}",
            "give the [CLS] tokens as activations, without `cls`",
        )  # fmt: skip
    cls_tokens = _floats(cls, "cls", (2,))
    if cls_tokens.shape != (len(z), z.shape[2]):
        raise InputError(
            _WHERE, f"`cls` is {cls_tokens.shape}, and activations are {z.shape}",
            "give a [CLS] token of the same width for every scene",
        )  # fmt: skip
    return z, cls_tokens


def _fitted(
    probe: AnyProbe, data: ProbeData, labels: _Labels, tokens: str, seed: int, control: str
) -> dict[str, Any]:
    """Fit one probe and make its row."""
    names = {"dataset": ARRAYS, "model": ARRAYS, "layer": "0", "tokens": tokens,
             "probe": probe.name, "control": control, "spec_key": "", "code_key": ""}  # fmt: skip
    with _threads(probe.threads):
        (result,) = run_fit(probe, data, [seed], control)
    row = fit_row(result, data, labels.prior, names, probe, Information())
    if labels.prior["method"] != "exact":
        row["flags"] = ";".join(sorted({*flag_list(row["flags"]), "assumed_prior"}))
    return row


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Compute on so many threads, as a job does; sums round by how they are split over threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        with threadpool_limits(number):
            yield
    finally:
        torch.set_num_threads(before)


def _table(rows: list[dict[str, Any]], prior: Mapping[str, Any]) -> pd.DataFrame:
    """Add the rows of the best probe, and leave out what arrays do not have."""
    parts = [row.pop("parts") for row in rows]
    absent = {column.name: None for column in BINDING_COLUMNS}
    rows = [{**absent, **row} for row in rows]
    rows += best_rows(rows, parts, {ARRAYS: prior.get("counts_reason")})
    table = pd.DataFrame(rows, columns=list(absent))
    unknown = ("null_", "truth_")
    without = [name for name in absent if name in _OF_A_RUN or name.startswith(unknown)]
    return table.drop(columns=without).infer_objects()


def _probe_data(labels: _Labels, z: Array, cls: Array | None, tokens: str) -> ProbeData:
    """Put one token input and the labels together, split by split."""

    def inputs(rows: npt.NDArray[np.int64]) -> Array | ArrayPatches:
        if tokens == "patches":
            return ArrayPatches(z[rows], None if cls is None else cls[rows])
        if tokens == "mean":
            means: Array = z[rows].mean(axis=1, dtype=np.float32)
            return means
        chosen: Array = (z if cls is None else cls)[rows]
        return chosen

    splits = {
        name: SplitData(
            inputs(rows), labels.objects[rows], labels.features[rows], labels.anchors[name]
        )
        for name, rows in labels.rows.items()
    }
    return ProbeData(**splits, sizes=labels.sizes)


def _inputs(probe: AnyProbe, z: Array, cls: Array | None) -> tuple[str, ...]:
    """Return the token inputs that a probe reads."""
    if probe.family in PATCH_FAMILIES:
        return ("patches",) if z.ndim == 3 else ()
    if z.ndim == 2:
        return ("vectors",)
    return ("mean",) if cls is None else ("cls", "mean")


def _probe(entry: str | Mapping[str, Any] | AnyProbe, device: str, threads: int) -> AnyProbe:
    """Return a probe's configuration; its name is its family where it has none."""
    if not isinstance(entry, str | Mapping):
        return entry
    given: dict[str, Any] = {"device": device, "threads": threads}
    given = {**given, "family": entry} if isinstance(entry, str) else dict(entry)
    if given.get("family") not in FAMILIES:
        known = [*FAMILIES]
        raise InputError(
            _WHERE, f"there is no probe family {given.get('family')!r}"
            f"{instead(given.get('family'), known)}", f"choose among {', '.join(known)}",
        )  # fmt: skip
    name = str(given.get("family", "probe")).replace("_", "-")
    probe: AnyProbe = _validated(AnyProbe, {"name": name, **given}, "probes")
    return probe


def _labels(
    objects: Any, features: Any, space: Any, n: int, seed: int, shares: Sequence[float]
) -> _Labels:
    """Check the codes, split the scenes, and count the prior."""
    codes = _bits(objects, "objects")
    if len(codes) != n:
        raise InputError(
            _WHERE, f"there are {len(codes)} object codes for {n} scenes",
            "give one object code for each scene of the activations",
        )  # fmt: skip
    known = _space(space, codes)
    sizes = tuple(group.size for group in known.groups)
    codes = _flat(codes, sizes)
    follow = feature_code(codes, sizes)
    if features is not None and not np.array_equal(_bits(features, "features"), follow):
        raise InputError(
            _WHERE, "`features` are not those that follow from `objects` (a value occurs if any "
            f"object has it; groups of {' and '.join(map(str, sizes))}, one after the other)",
            "leave `features` out",
        )  # fmt: skip
    rows = _split(n, seed, shares)
    of_split, prior = _priors(known, codes, rows)
    note = _repeated(codes, of_split["test"], rows) if prior["method"] == "exact" else ""
    if note:
        prior = {**prior, "method": "contradicted"}
    return _Labels(codes, follow, sizes, of_split, prior, rows, (note,) if note else ())


def _repeated(codes: Bits, test: Anchors, rows: Mapping[str, npt.NDArray[np.int64]]) -> str:
    """Say so if test codes occur in train more often than the declared distribution allows.

    A probe then learns which codes there are, as well as what the representation holds of them.
    """
    sign = 1.0 - 2.0 * codes[rows["test"]]
    log_p = -np.logaddexp(0, sign * np.asarray(test["object"], np.float64)).sum(1)
    expected = -np.expm1(len(rows["train"]) * np.log1p(-np.exp(log_p).clip(max=1 - 1e-12)))
    packed = np.ascontiguousarray(np.packbits(codes, axis=1))
    names = packed.view([("", packed.dtype)] * packed.shape[1]).reshape(-1)
    seen = np.isin(names[rows["test"]], names[rows["train"]])
    error = np.sqrt((expected * (1 - expected)).sum())
    if seen.sum() - expected.sum() <= MOST_REPEATED * error + 1:
        return ""
    return (
        f"{100 * seen.mean():.0f} % of the test scenes have an object code that train scenes have "
        f"too; of the declared distribution it would be {100 * expected.mean():.0f} %. The prior "
        "is not that of these scenes, and no number is a bound (flag assumed_prior)."
    )


def _priors(
    space: Any, codes: Bits, rows: Mapping[str, npt.NDArray[np.int64]]
) -> tuple[Mapping[str, Anchors], Mapping[str, Any]]:
    """Return anchors by split and the entropies of the test split: exact, or estimated."""
    by_split = {name: codes[chosen] for name, chosen in rows.items()}
    if isinstance(space, CountedSpace):
        _refuse_outside(codes, codes.sum(1, dtype=np.int64), 1, space.max_objects)
        counted = CountedPrior(by_split, space)
        of_split = {name: clipped(counted.log_odds(name)) for name in by_split}
        found = counted_entropies(by_split, space)
    else:
        dataset = SceneDistribution(name="arrays", space=space, split=RandomSplit(rule="random"))
        try:
            everything = anchors(dataset, codes)
        except ValueError as error:
            raise InputError(
                _WHERE, str(error), f"correct its code, or `space`, which is {space.kind}: "
                f"{space.model_dump(exclude={'kind', 'groups'})}",
            ) from error  # fmt: skip
        of_split = {
            name: {kind: values[chosen] for kind, values in everything.items()}
            for name, chosen in rows.items()
        }
        found = entropies(dataset)
    return of_split, next(row for row in found if row["split"] == "test")


def _refuse_outside(codes: Bits, numbers: Array, fewest: int, most: int) -> None:
    outside = (numbers < fewest) | (numbers > most)
    if outside.any():
        first = int(np.argmax(outside))
        raise InputError(
            _WHERE, f"scene {first} has {numbers[first]} objects; the space allows {fewest} to "
            f"{most}", "leave such scenes out, or widen `space`",
        )  # fmt: skip


def _space(given: Any, codes: Bits) -> Any:
    """Return the space as the configuration has it; `counted` where only sizes are known."""
    if isinstance(given, Model):
        return given
    if isinstance(given, Mapping):
        content = dict(given)
        if isinstance(content.get("groups"), Mapping):
            content["groups"] = [
                {"name": name, "size": size} for name, size in content["groups"].items()
            ]
        return _validated(Space, content, "space")
    if given is None and codes.ndim == 2:
        raise InputError(
            _WHERE, f"object codes {codes.shape} do not say what the feature groups are",
            "give `space`, such as the groups' sizes (6, 6), or give objects as grids (N, 6, 6)",
        )  # fmt: skip
    sizes = codes.shape[1:] if given is None else tuple(given)
    most = int(codes.reshape(len(codes), -1).sum(1, dtype=np.int64).max(initial=1))
    groups = [{"name": f"group{i + 1}", "size": size} for i, size in enumerate(sizes)]
    content = {"kind": "counted", "groups": groups, "max_objects": max(most, 1)}
    return _validated(Space, content, "space")


def _flat(codes: Bits, sizes: tuple[int, ...]) -> Bits:
    """Return codes or grids as codes (N, K)."""
    if codes.shape[1:] not in ((prod(sizes),), sizes):
        raise InputError(
            _WHERE, f"objects are {codes.shape}, and the groups of `space` have sizes {sizes}",
            f"give codes (N, {prod(sizes)}) or grids (N, {', '.join(map(str, sizes))})",
        )  # fmt: skip
    return codes.reshape(len(codes), -1)


def _split(n: int, seed: int, shares: Sequence[float]) -> dict[str, npt.NDArray[np.int64]]:
    """Deal the scenes out to train, val and test."""
    if n < FEWEST_SCENES:
        raise InputError(
            _WHERE, f"there are {n} scenes", f"give at least {FEWEST_SCENES}, better thousands"
        )
    if len(shares) != len(SPLITS) or not all(s > 0 for s in shares) or sum(shares) > 1 + 1e-9:
        raise InputError(
            _WHERE, f"`shares` are {tuple(shares)}",
            f"give positive shares of train, val and test that add up to 1, such as {SHARES}",
        )  # fmt: skip
    order = np.random.Generator(np.random.PCG64(seed)).permutation(n)
    ends = np.round(np.cumsum([0.0, *shares]) * n).astype(int)
    return {
        name: np.sort(order[start:stop])
        for name, start, stop in zip(SPLITS, ends[:-1], ends[1:], strict=True)
    }


def _array(values: Any, name: str) -> Array:
    """Return any framework's array as numpy's, on the host."""
    if hasattr(values, "detach"):  # torch
        values = values.detach().cpu()
        if values.is_floating_point():  # numpy has no bfloat16
            values = values.float()
    found = np.asarray(values)
    if found.dtype.kind not in "buif":
        raise InputError(
            _WHERE, f"`{name}` is an array of {found.dtype}", "give numbers in an array"
        )
    return found


def _floats(values: Any, name: str, n_axes: tuple[int, ...]) -> Array:
    found = _array(values, name)
    if found.ndim not in n_axes or 0 in found.shape:
        shapes = " or ".join({2: "(N, d)", 3: "(N, T, d)"}[axes] for axes in n_axes)
        raise InputError(_WHERE, f"`{name}` is {found.shape}", f"give it as {shapes}")
    found = found.astype(np.float32, copy=False)
    bad = ~np.isfinite(found).reshape(len(found), -1).all(axis=1)
    if bad.any():
        raise InputError(
            _WHERE, f"`{name}` has values that are not finite in {bad.sum()} scenes, the first of "
            f"them scene {int(np.argmax(bad))}", "leave these scenes out, or find out why",
        )  # fmt: skip
    return found


def _bits(values: Any, name: str) -> Bits:
    found = _array(values, name)
    if found.ndim < 2 or not len(found):
        raise InputError(_WHERE, f"`{name}` is {found.shape}", "give a row of bits per scene")
    if not ((found == 0) | (found == 1)).all():
        raise InputError(
            _WHERE, f"`{name}` holds other values than 0 and 1",
            "a code says which objects occur, not how many of them",
        )  # fmt: skip
    return found.astype(np.uint8)


def _validated(kind: Any, content: Mapping[str, Any], name: str) -> Any:
    """Return a section of the configuration, or say what is wrong with it."""
    try:
        return TypeAdapter(kind).validate_python(dict(content))
    except ValidationError as error:
        lines = "; ".join(
            f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()
        )
        raise InputError(
            _WHERE, f"`{name}` is not as it must be: {lines}", "see config/README.md"
        ) from error
