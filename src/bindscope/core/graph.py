"""Products and the graph that holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from bindscope.core.errors import ConfigError
from bindscope.core.files import canonical_json
from bindscope.core.keys import chained_code, own_code, spec_key
from bindscope.core.paths import PATHS, READS
from bindscope.core.registries import ADAPTERS, BACKENDS, FAMILIES, READERS, RENDERERS, SPACES


@dataclass(frozen=True)
class Product:
    """One job's worth of output.

    Attributes
    ----------
    rule
        Name of the Snakemake rule.
    wildcards
        Values of the rule's wildcards, `key` (8 hex digits of the spec key) included.
    spec, code
        The two keys' contents; see `bindscope.core.keys`.
    inputs
        Products by role.
    """

    rule: str
    wildcards: Mapping[str, str]
    spec: str
    code: str
    inputs: Mapping[str, Sequence[Product]] = field(repr=False)

    @cached_property
    def key(self) -> str:
        """The spec key, 64 hex digits."""
        return spec_key(self.spec)

    def path(self, output: str | None = None) -> str:
        """Path of one output; the first one where none is named (manifest or rows)."""
        templates = PATHS[self.rule]
        return templates[output or next(iter(templates))].format(**self.wildcards)

    def files(self) -> dict[str, list[str]]:
        """Paths of the inputs by role: what stands for each product.

        What is read of them besides that is under ``<role>_<output>``.
        """
        found = {}
        for role, products in self.inputs.items():
            found[role] = [product.path() for product in products]
            made = PATHS[products[0].rule] if products else {}
            for output in ("store", *READS.get(self.rule, {}).get(role, ())):
                if output in made:
                    found[f"{role}_{output}"] = [product.path(output) for product in products]
        return found


# Which script makes a product; several rules share one where only their inputs differ.
SCRIPT = {
    "null": "fit.py",
    "pooled": "extract.py",
    "patches": "extract.py",
    "patches_temporary": "extract.py",
}


def roots(rule: str, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return where the code of a step begins: its script and the implementations that it names."""
    names = [SCRIPT.get(rule, f"{rule}.py")]
    references = []
    if dataset := spec.get("dataset"):
        # A counted space is no implementation: all there is to it are the scenes.
        if (kind := dataset["space"]["kind"]) in SPACES:
            references.append(SPACES[kind])
        if source := dataset.get("source"):
            references.append(READERS.get(source["kind"]) or source["reader"])
        if rule == "scenes":
            references.append(RENDERERS[dataset["render"]["kind"]])
            if backend := dataset["render"].get("backend"):
                references.append(BACKENDS[backend["kind"]])
    if model := spec.get("model"):
        scheme, _, rest = model["source"].partition(":")
        references.append(ADAPTERS[scheme])
        if scheme == "python":
            references.append(rest)
    if probe := spec.get("probe"):
        references.append(FAMILIES[probe["family"]])
    names += [reference.partition(":")[0] for reference in references]
    return tuple(names)


class Graph:
    """All products that a configuration asks for, by rule and wildcards."""

    def __init__(self) -> None:
        self.products: dict[tuple[str, tuple[tuple[str, str], ...]], Product] = {}
        self.remembered: dict[tuple[object, ...], tuple[Any, object]] = {}

    def add(
        self,
        rule: str,
        wildcards: Mapping[str, object],
        content: Mapping[str, Any],
        inputs: Mapping[str, Product | Sequence[Product]] | None = None,
    ) -> Product:
        """Add a product, or return the one that is there.

        Parameters
        ----------
        rule
            Name of the rule.
        wildcards
            Values of its wildcards without `key`.
        content
            The configuration slice it depends on, JSON-able.
        inputs
            Products it is made from, by role; their spec keys enter the spec.
        """
        lists = {
            role: [given] if isinstance(given, Product) else list(given)
            for role, given in (inputs or {}).items()
        }
        chained = {role: [product.key for product in given] for role, given in lists.items()}
        spec = canonical_json({**content, "inputs": chained})
        values = {name: str(value) for name, value in wildcards.items()}
        if "{key}" in next(iter(PATHS[rule].values())):
            values["key"] = spec_key(spec)[:8]
        identity = (rule, tuple(sorted(values.items())))
        if identity not in self.products:
            code = chained_code(
                own_code(roots(rule, content)),
                (product.code for given in lists.values() for product in given),
            )
            self.products[identity] = Product(rule, values, spec, code, lists)
        return self.products[identity]

    def find(self, rule: str, wildcards: Mapping[str, str]) -> Product:
        """Look a product up.

        Raises
        ------
        ConfigError
            If the current configuration does not ask for it.
        """
        identity = (rule, tuple(sorted(wildcards.items())))
        if identity not in self.products:
            asked = ", ".join(f"{name}={value}" for name, value in identity[1])
            raise ConfigError(
                f"{rule}({asked})",
                "the current configuration has no such product",
                "print the paths it has with `bindscope path`, or give its --configfile",
            )
        return self.products[identity]

    def of(self, *rules: str) -> list[Product]:
        """All products of some rules, in the order they were added."""
        return [product for product in self.products.values() if product.rule in rules]


Arguments = ParamSpec("Arguments")
Added = TypeVar("Added")


def once(
    add: Callable[Concatenate[Graph, Arguments], Added],
) -> Callable[Concatenate[Graph, Arguments], Added]:
    """Let a function that adds products work once per graph and positional arguments.

    Thousands of fits ask for the same labels and shards. Names and numbers are told apart by value,
    everything else by identity.
    """

    @wraps(add)
    def remembering(graph: Graph, /, *given: Arguments.args, **named: Arguments.kwargs) -> Added:
        assert not named
        key = (add, *(x if isinstance(x, str | int | tuple) else id(x) for x in given))
        if key not in graph.remembered:
            # What was given is kept: an identity may be used again when its owner is gone.
            graph.remembered[key] = (add(graph, *given, **named), given)
        added: Added = graph.remembered[key][0]
        return added

    return remembering
