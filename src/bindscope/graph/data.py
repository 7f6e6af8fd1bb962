"""Products that depend on a dataset alone."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bindscope.codes.counting import largest_scene, n_feature_codes
from bindscope.config.codes import Dataset, HashedSplit, RankedSplit, SceneDistribution
from bindscope.config.genome import GenomeSource
from bindscope.config.observed import AnySource, ClevrSource, CountedSpace, PythonSource
from bindscope.config.pug_spare import PugSpareSource
from bindscope.config.segmented import Ade20kSource, CocoPanopticSource
from bindscope.config.slots import EnumeratedSplit
from bindscope.config.solids import SolidsRenderer
from bindscope.core.contents import content_key
from bindscope.core.errors import ConfigError
from bindscope.core.graph import Graph, Product, once
from bindscope.core.registries import BACKENDS, READERS, RENDERERS, SPACES, resolve
from bindscope.core.splits import SPLITS
from bindscope.scenes.pug_spare_values import TABLE
from bindscope.sources.label_files import label_files

# Up to here listing all feature codes takes no time that is noticed.
_LISTED_BEFORE_RUNNING = 4096


def check_split(dataset: Dataset) -> None:
    """Refuse a split without feature codes or with too few scenes, before anything runs.

    Where the space has many, only the job that draws from them looks.

    Raises
    ------
    ConfigError
        If a split has no feature codes, or enumerated splits ask for more scenes than there are.
    """
    if isinstance(dataset.split, EnumeratedSplit):
        from bindscope.codes.enumeration import check_sizes  # imports NumPy

        check_sizes(dataset)
    if not by_feature_code(dataset) or isinstance(dataset.space, CountedSpace):
        return
    space = resolve(SPACES[dataset.space.kind])(dataset.space)
    total = sum(n_feature_codes(space.sizes, counts) for counts in space.covers())
    if total <= _LISTED_BEFORE_RUNNING:
        from bindscope.codes.splits import feature_codes  # imports NumPy

        for split in SPLITS:
            feature_codes(dataset, split)


def check_programs(graph: Graph) -> None:
    """Refuse scenes that remain to be drawn by a program that is not installed here.

    Raises
    ------
    ConfigError
        If Mitsuba is missing.
    """
    for product in graph.select("scenes"):
        render = json.loads(product.spec)["dataset"]["render"]
        kind = (render.get("backend") or {}).get("kind")
        if kind == "mitsuba" and find_spec(kind) is None and not Path(product.path()).exists():
            raise ConfigError(
                "render.backend: mitsuba",
                "Mitsuba is not installed, and scenes are to be drawn",
                "pip install 'bindscope[solids]', or use `backend: {kind: raycast}`",
            )


def by_feature_code(dataset: Dataset) -> bool:
    """Whether no feature code is in two splits."""
    return isinstance(dataset.split, RankedSplit | HashedSplit)


def space_slice(dataset: Dataset) -> dict[str, Any]:
    """What decides the distribution of codes: the space and the split rule.

    Scenes that are dealt out without a look at them follow the space's law in every split.
    """
    content = dataset.model_dump(mode="json", include={"space", "split"})
    return content if by_feature_code(dataset) else {**content, "split": {"rule": "random"}}


def codes_slice(dataset: Dataset) -> dict[str, Any]:
    """What decides the code of scene i of a split; not how many there are."""
    if dataset.source:
        return dataset.model_dump(mode="json", include={"space", "split"})
    return dataset.model_dump(mode="json", include={"space", "split", "seed", "slots"})


def scenes_slice(dataset: Dataset) -> dict[str, Any]:
    """What decides how scene i of a split looks."""
    return dataset.model_dump(mode="json", include={"space", "split", "seed", "slots", "render"})


def space_code(dataset: SceneDistribution) -> list[str]:
    """Return the implementation of a space; a counted one has none, all there is are the scenes."""
    return [SPACES[dataset.space.kind]] if dataset.space.kind in SPACES else []


def renderer_code(dataset: SceneDistribution) -> list[str]:
    """Return the implementation of a renderer, and of what draws for it."""
    render = dataset.render
    modules = [RENDERERS[render.kind]] if render and render.kind in RENDERERS else []
    return (
        [*modules, BACKENDS[render.backend.kind]] if isinstance(render, SolidsRenderer) else modules
    )


def _reader_code(source: AnySource) -> str:
    return source.reader if isinstance(source, PythonSource) else READERS[source.kind]


@once
def add_records(graph: Graph, dataset: Dataset) -> Product:
    """Scenes that are read: checked, and dealt out to splits."""
    source = dataset.source
    assert source is not None
    return graph.add(
        "records",
        {"dataset": dataset.name},
        {
            "dataset": dataset.model_dump(
                mode="json",
                include={"space", "split", "source", "slots"},
                exclude={"source": _OBTAINED} if isinstance(source, GenomeSource) else None,
            ),
            "labels_sha256": _labels_key(source),
        },
        _obtained(graph, dataset.name, source),
        runs=[*space_code(dataset), _reader_code(source)],
    )


# Keys of a release that the specs of its files hold, where it is downloaded at all.
_OBTAINED = {"downloads", "folder"}


def _obtained(graph: Graph, dataset: str, source: AnySource) -> dict[str, list[Product]]:
    """What is downloaded for a source without a `path`, by role."""
    downloads = []
    if source.path is None and isinstance(source, ClevrSource):
        downloads = [source.model_dump(mode="json", include={"url", "sha256", "folder"})]
    elif source.path is None and isinstance(source, GenomeSource):
        downloads = [
            {**file.model_dump(mode="json"), "folder": source.folder} for file in source.downloads
        ]
    return {"download": [graph.add("download", {"dataset": dataset}, file) for file in downloads]}


def _labels_key(source: AnySource) -> str | list[str] | None:
    """Hash the files that labels are read from; None where the source has no `path`."""
    if source.path is None:
        return None
    path = Path(source.path).expanduser()
    if isinstance(source, Ade20kSource | CocoPanopticSource):
        # Of the masks beside them it is taken that they do not change, as of the images.
        return [content_key(path / name) for name in label_files(source)]
    if isinstance(source, PugSpareSource) and path.is_dir():
        path = path / TABLE
    if isinstance(source, ClevrSource) and path.is_dir():
        # The images beside them would be read anew at each start of Snakemake.
        unpacked = path / "scenes"
        path = unpacked if unpacked.exists() else path / "CLEVR_v1.0" / "scenes"
    return content_key(path)


@once
def add_priors(graph: Graph, dataset: Dataset) -> Product:
    """Entropies of every split; estimates where nobody knows the space's distribution."""
    if isinstance(dataset.space, CountedSpace):
        content = dataset.model_dump(mode="json", include={"space"})
        codes = {"codes": add_codes(graph, dataset)}
        return graph.add("counted_priors", {"dataset": dataset.name}, content, codes)
    content = {"dataset": space_slice(dataset)}
    return graph.add("priors", {"dataset": dataset.name}, content, runs=space_code(dataset))


@once
def add_codes(graph: Graph, dataset: Dataset) -> list[Product]:
    """Object and feature codes, a product per split."""
    if dataset.source:
        content: dict[str, Any] = {"sizes": [group.size for group in dataset.space.groups]}
        if dataset.slots:
            content["slots"] = dataset.slots
        return [
            graph.add(
                "record_codes",
                {"dataset": dataset.name, "split": split},
                {**content, "split": split, "n_scenes": getattr(dataset.n_scenes, split)},
                {"records": add_records(graph, dataset)},
            )
            for split in SPLITS
        ]
    return [
        graph.add(
            "codes",
            {"dataset": dataset.name, "split": split},
            {
                "dataset": codes_slice(dataset),
                "split": split,
                "n_scenes": getattr(dataset.n_scenes, split),
            },
            runs=space_code(dataset),
        )
        for split in SPLITS
    ]


@once
def add_anchors(graph: Graph, dataset: Dataset) -> list[Product]:
    """Prior log-odds, a product per split: exact, or estimated from the scenes of train."""
    if isinstance(dataset.space, CountedSpace):
        content = dataset.model_dump(mode="json", include={"space"})
        codes = {"codes": add_codes(graph, dataset)}
        return [
            graph.add(
                "counted_anchors",
                {"dataset": dataset.name, "split": split},
                {**content, "split": split},
                codes,
            )
            for split in SPLITS
        ]
    return [
        graph.add(
            "anchors",
            {"dataset": dataset.name, "split": codes.wildcards["split"]},
            {"dataset": space_slice(dataset)},
            {"codes": codes},
            runs=space_code(dataset),
        )
        for codes in add_codes(graph, dataset)
    ]


@once
def add_labels(graph: Graph, dataset: Dataset) -> Product:
    """What a fit reads besides activations: codes, anchors and priors, as one product."""
    return graph.add(
        "labels",
        {"dataset": dataset.name},
        {},
        {
            "codes": add_codes(graph, dataset),
            "anchors": add_anchors(graph, dataset),
            "priors": add_priors(graph, dataset),
        },
    )


def shards(dataset: Dataset, split: str) -> range:
    """Numbers of the shards of a split."""
    return range(-(-getattr(dataset.n_scenes, split) // getattr(dataset.shard_size, split)))


def shard_slice(dataset: Dataset, split: str, shard: int) -> dict[str, Any]:
    """Which scenes a shard holds; only the last one of scenes that are read may be smaller."""
    size, n = getattr(dataset.shard_size, split), getattr(dataset.n_scenes, split)
    return {"split": split, "start": shard * size, "stop": min((shard + 1) * size, n)}


@once
def add_scenes(graph: Graph, dataset: Dataset, split: str) -> list[Product]:
    """Images, masks and boxes of a split, a product per shard; masks where there are any."""
    if dataset.source:
        return [
            graph.add(
                "record_scenes",
                {"dataset": dataset.name, "split": split, "shard": f"{shard:05d}"},
                {
                    **dataset.model_dump(mode="json", include={"render"}),
                    "max_objects": largest_scene(dataset.space),
                    **shard_slice(dataset, split, shard),
                },
                {"records": add_records(graph, dataset)},
            )
            for shard in shards(dataset, split)
        ]
    return [
        graph.add(
            "scenes",
            {"dataset": dataset.name, "split": split, "shard": f"{shard:05d}"},
            {"dataset": scenes_slice(dataset), **shard_slice(dataset, split, shard)},
            runs=[*space_code(dataset), *renderer_code(dataset)],
        )
        for shard in shards(dataset, split)
    ]
