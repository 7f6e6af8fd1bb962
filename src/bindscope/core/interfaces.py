"""What the parts of bindscope promise each other: read this first.

It imports nothing of the package.

The first half is about the workflow: a `Step` is a rule of Snakemake as the library knows it, and a
`Study` is what one research question adds: steps, tables, figures and what the report says. The
second half is about the science: what a renderer, a reader, a model, a probe family and a training
objective offer. Everything is registered by name in `core/registries.py`, as a
``"module:object"`` string that is imported when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor

DECIDES_NOTHING = True

# Of a caption: words of the figure, and what is said if it has them.
CONDITIONAL = re.compile(r"{([^|}]*)\|([^}]*)}")

Layer = int | Literal["final"]


# --- The workflow -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One rule of the workflow: what it makes and which script makes it.

    Attributes
    ----------
    name
        Name of the Snakemake rule.
    outputs
        Output name -> path below ``results/`` with the rule's wildcards. The first output stands
        for the product; `key` is a wildcard of every path that a change of configuration moves.
    script
        File in ``workflow/scripts``; default: ``<name>.py``.
    reads
        Role -> outputs that are read of such an input besides the first one and a store beside it.
        What is not read is no input: each costs Snakemake time.
    leaf
        Whether ``rule all`` asks for it by name: all that a table, figure or report is made from. A
        job that dies loses its record, and a table above it would pass for up to date.
    makes
        What it makes, in a word or two, for config/README.md; default: its name.
    zoo
        Of trainings whose models may be committed in resources/zoo: the function that says what
        the zoo's manifest is to hold of them, from the path of a training's manifest.
    work
        ``"module:function"`` that counts a job's work; default: that of jobs that take little.
    """

    name: str
    outputs: Mapping[str, str]
    script: str = ""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    leaf: bool = False
    makes: str = ""
    zoo: str = ""
    work: str = "bindscope.core.work:small"


@dataclass(frozen=True)
class ProductFiles:
    """A product that a table, a figure or the report is made from.

    Attributes
    ----------
    names
        Its wildcards (dataset, model, ...), and `spec_key` and `code_key`.
    files
        Paths by output name; of the outputs, those that are read.
    """

    names: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def path(self) -> str:
        """The file that stands for the product."""
        return next(iter(self.files.values()))


@dataclass(frozen=True)
class Inputs:
    """What a table, a figure or a chapter of the report is made from.

    Attributes
    ----------
    products
        Products by role, in the graph's order.
    content
        What else of the configuration it depends on (its `Request.content`).
    resources
        Committed files by name: ``resources/published/trends.csv`` is `trends`; the package's have
        their folder before it (``studies/x/introduction.html`` is `x_introduction`).
    """

    products: Mapping[str, Sequence[ProductFiles]] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)

    def get(self, role: str) -> Sequence[ProductFiles]:
        """Return the products of a role, none where the role was not given."""
        return self.products.get(role, ())

    def paths(self, role: str) -> list[str]:
        """Return the files that stand for the products of a role."""
        return [product.path for product in self.get(role)]


@dataclass(frozen=True)
class Request:
    """What a table or a figure needs, of the products that a configuration has.

    Attributes
    ----------
    inputs
        Products by role; what `reads` names of them besides the first output is read too.
    content
        What else of the configuration it depends on; JSON-able.
    reads
        Role -> further outputs that are read.
    """

    inputs: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TableEntry:
    """A table of a study: ``results/tables/<name>.{parquet,csv,html}``.

    Attributes
    ----------
    name
        Name of the table.
    implementation
        ``"module:object"`` of a `Table`.
    request
        ``(graph, shared, section) -> Request | None``; None where the configuration has no rows
        for it. Called when everything that studies compute is in the graph, and the tables of the
        studies before it in the registry.
    """

    name: str
    implementation: str
    request: Callable[[Any, Any, Any], Request | None]


@dataclass(frozen=True)
class FigureEntry:
    """A figure of a study: ``results/figures/<name>.{png,svg}``.

    Attributes
    ----------
    name
        Name of the figure.
    title
        Its heading in the report.
    caption
        At most 60 words: what is plotted, what intervals cover, how to read it. The report shows
        ``{words|text}`` as the text, if the figure itself has the words (in its legend).
    implementation
        The `figures.figure.Figure`, ``"module:object"``.
    request
        ``(graph, shared, section) -> Request | None``; None where the configuration has nothing to
        show. Called when all tables are in the graph.
    resources
        Committed files that it reads.
    narrow
        Name of the figure that a narrow screen shows in its place; empty for the same.
    """

    name: str
    title: str
    caption: str
    implementation: str
    request: Callable[[Any, Any, Any], Request | None]
    resources: tuple[str, ...] = ()
    narrow: str = ""

    @property
    def full_caption(self) -> str:
        """The caption of a figure that has all words that it depends on."""
        return CONDITIONAL.sub(r"\2", self.caption)

    @classmethod
    def build(
        cls,
        study: str,
        reference: str,
        title: str,
        caption: str,
        request: Any,
        *resources: str,
        narrow: str = "",
    ) -> FigureEntry:
        """Return the entry of ``"module:figure"`` in a study, under the figure's own name."""
        name = reference.partition(":")[2]
        return cls(name, title, caption, f"{study}.{reference}", request, resources, narrow)


@dataclass(frozen=True)
class Study:
    """One research question: a folder, a ``.smk``, a page of docs and a line in the registry.

    Attributes
    ----------
    name
        Its name in the registry, in ``studies:`` of the configuration, of its folder and its
        ``workflow/rules/<name>.smk``.
    title
        What it is about, in a line; the heading of its chapter.
    section
        ``"module:class"`` of its section of the configuration; empty where it has none and
        always takes part.
    problems
        ``(config, section) -> lines``: what in its section does not fit the rest, each as
        ``path: what is wrong``, the path relative to the section.
    products
        ``(graph, shared, section)``: adds what the study computes.
    steps, tables, figures
        What it adds to the workflow.
    wildcards
        Wildcards of its rules that no other step has, as regular expressions.
    trains
        Models that it trains and that any study may read: scheme of their `source` ->
        ``(graph, section, name)``, which adds what such a model is loaded from, or names what
        the zoo has of it.
    findings
        ``"module:function"`` that makes its chapter of the report, see `Findings`; empty for none.
    findings_code
        What its findings find by name, ``"module:object"``: part of the report's code key.
    resources
        Committed files that its findings read.
    examples
        Name -> ``"module:function"`` of planted arrays, ``(n, random_state) -> Example``, for
        `bindscope.example`.
    """

    name: str
    title: str
    products: Callable[[Any, Any, Any], None]
    section: str = ""
    problems: Callable[[Any, Any], Iterator[str]] | None = None
    steps: tuple[Step, ...] = ()
    tables: tuple[TableEntry, ...] = ()
    figures: tuple[FigureEntry, ...] = ()
    wildcards: Mapping[str, str] = field(default_factory=dict)
    trains: Mapping[str, Callable[[Any, Any, str], Any]] = field(default_factory=dict)
    findings: str = ""
    findings_code: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    examples: Mapping[str, str] = field(default_factory=dict)

    @property
    def wide_figures(self) -> tuple[FigureEntry, ...]:
        """Its figures without those that narrow screens show in the place of another."""
        narrow = {figure.narrow for figure in self.figures}
        return tuple(figure for figure in self.figures if figure.name not in narrow)


class Table(Protocol):
    """How a table is made from the rows that jobs left."""

    schema: Any
    """Its `bindscope.tables.schema.TableSchema`: columns with type, unit, range and meaning."""

    def build(self, inputs: Inputs) -> pd.DataFrame:
        """Return the table, valid under the schema; rows that were not asked for are refused."""


class Findings(Protocol):
    """What the report says about a study."""

    def __call__(self, tables: Mapping[str, pd.DataFrame], inputs: Inputs) -> Any:
        """Return the study's `bindscope.report.chapter.Chapter`.

        Parameters
        ----------
        tables
            All tables of the run, by name.
        inputs
            The whole configuration as `content`, and the study's resources.
        """


# --- The science --------------------------------------------------------------------------------


class Renderer(Protocol):
    """Draws scenes of object codes."""

    def __call__(
        self, dataset: Any, split: str, start: int, objects: NDArray[np.uint8]
    ) -> dict[str, NDArray[Any]]:
        """Draw consecutive scenes; scene i looks the same in whatever shard it is drawn.

        Parameters
        ----------
        dataset
            A `config.codes.SceneDistribution`.
        split, start
            The split, and the index in it of the first scene.
        objects
            Object codes, uint8 (n, K).

        Returns
        -------
        ``images`` uint8 (n, H, W, 3); ``masks`` uint8 (n, H, W), 0 = background, j = the j-th
        object; ``boxes`` int16 (n, M, 4), x0 y0 x1 y1 in pixels, ends exclusive, -1 = none;
        ``cells`` int16 (n, M), the object-code index of the j-th object, -1 = none.
        """


class Reader(Protocol):
    """Reads the scenes of one dataset; made as ``Reader(source, split_column)``.

    `source` is the section of the configuration, `split_column` the name of the column that says
    which split a scene is in, where the dataset's split rule is `column`, else None. A reader that
    leaves images out says so in a list `skipped` (`sources.base.Skipped`), full when all scenes
    are read.
    """

    @property
    def vocabulary(self) -> Mapping[str, Sequence[str]]:
        """The values of every feature group in order, by the group's name."""

    @property
    def images(self) -> str | Sequence[str]:
        """The folder or zip archive that image names start from, or several of them."""

    def scenes(self) -> Iterable[Any]:
        """Read the scenes (`sources.base.Scene`), in an order that does not change."""


@runtime_checkable
class Model(Protocol):
    """A frozen model over images.

    Layers. Layer 0 is what enters block 1 (after patch embedding, position embedding and, where
    the model has one, the norm before the blocks); layer l is the residual stream after block l,
    raw; ``"final"`` is the last layer after the model's final norm.

    Attributes
    ----------
    n_layers
        Number of blocks; layers run from 0 to `n_layers`, then ``"final"``.
    dim
        Width of the residual stream.
    token_map
        Which token is what (`models.base.TokenMap`), at the size that `preprocess` gives.
    shapes
        Only where layers differ, or others than these exist: layer -> `models.base.LayerShape`.
    revision
        What pins the architecture and the weights in words (a commit, a seed, a file).
    weights_sha256
        Hash of the weights.
    """

    n_layers: int
    dim: int
    token_map: Any
    revision: str
    weights_sha256: str

    def preprocess(self, images: NDArray[np.uint8]) -> Tensor:
        """Apply the model's own transform.

        Parameters
        ----------
        images
            uint8 (B, H, W, 3).

        Returns
        -------
        float32 (B, 3, height, width), on the model's device.
        """
        ...

    def residual_stream(
        self, pixels: Tensor, layers: Sequence[Layer]
    ) -> Iterator[tuple[Layer, Tensor]]:
        """Run one forward pass and give the layers asked for, in ascending order.

        Parameters
        ----------
        pixels
            What `preprocess` returns.
        layers
            Layers wanted; the pass stops after the deepest of them.

        Yields
        ------
        The layer, and its tokens: float32 (B, n_tokens, dim).
        """
        ...


class Edit(Protocol):
    """A change of the residual stream at one layer: a function of tokens."""

    def __call__(self, tokens: Tensor, /) -> Tensor:
        """Return the tokens that the rest of the network runs on.

        Parameters
        ----------
        tokens
            float32 (B, n_tokens, dim), on the model's device; not to be changed in place.

        Returns
        -------
        Tokens of the same shape, floating point, on the same device.
        """
        ...


@runtime_checkable
class Editable(Protocol):
    """A `Model` that can also be run with edits; optional, see `models.edits.editable`."""

    def edited_stream(
        self,
        pixels: Tensor,
        layers: Sequence[Layer],
        edits: Mapping[int, Edit],
        *,
        gradients: bool = False,
    ) -> Iterator[tuple[Layer, Tensor]]:
        """Run one forward pass on an edited residual stream; without edits, `residual_stream`.

        Parameters
        ----------
        pixels, layers
            As in `Model.residual_stream`.
        edits
            Layer -> its edit. A layer is given as its edit left it, and so are those after it.
        gradients
            Whether gradients flow back through the blocks into edits and pixels. The model's own
            weights are frozen either way.
        """
        ...


@runtime_checkable
class Attentive(Protocol):
    """A `Model` whose attention can be read; optional, see `models.attention.attentive`."""

    def attention(
        self, pixels: Tensor, blocks: Sequence[int], edits: Mapping[int, Edit] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Run one forward pass and give the attention of some blocks, in ascending order.

        Parameters
        ----------
        pixels
            What `preprocess` returns.
        blocks
            Block l reads layer l - 1 and gives layer l; the pass stops after the last one.
        edits
            As in `Editable.edited_stream`; an edit at layer l is seen by block l + 1.

        Yields
        ------
        The block, and its `models.attention.BlockAttention`: queries and keys of every head.
        """
        ...
