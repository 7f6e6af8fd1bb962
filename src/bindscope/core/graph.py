"""Products and the graph that holds them; it knows no step, no study and no path of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from itertools import chain
from typing import Any, Concatenate, ParamSpec, TypeVar

from bindscope.core.errors import ConfigError
from bindscope.core.files import canonical_json
from bindscope.core.interfaces import Inputs, ProductFiles, Request, Step
from bindscope.core.keys import CLONE, chained_code, hash_step, spec_key
from bindscope.core.registries import resolve
from bindscope.core.work import Work

DECIDES_NOTHING = True


@dataclass(frozen=True)
class Product:
    """One job's worth of output.

    Attributes
    ----------
    step
        The rule that makes it.
    wildcards
        Values of the rule's wildcards, `key` (8 hex digits of the spec key) included.
    spec, code
        The two keys' contents; see `bindscope.core.keys`.
    inputs
        Products by role.
    reads
        Role -> outputs that are read besides the first one.
    resources
        Committed files that it reads, by name; paths from the clone's root.
    """

    step: Step
    wildcards: Mapping[str, str]
    spec: str
    code: str
    inputs: Mapping[str, Sequence[Product]] = field(repr=False)
    reads: Mapping[str, tuple[str, ...]] = field(repr=False)
    resources: Mapping[str, str] = field(repr=False)

    @property
    def sources(self) -> list[Product]:
        """Products that its job reads, of all roles."""
        return list(chain(*self.inputs.values()))

    @property
    def rule(self) -> str:
        """Name of the Snakemake rule."""
        return self.step.name

    @cached_property
    def key(self) -> str:
        """The spec key, 64 hex digits."""
        return spec_key(self.spec)

    @property
    def keys(self) -> dict[str, str]:
        """Both keys: what tells its files from those of another configuration, or of other code."""
        return {"spec_key": self.key, "code_key": self.code}

    @cached_property
    def content(self) -> dict[str, Any]:
        """The spec, parsed."""
        content: dict[str, Any] = json.loads(self.spec)
        return content

    @cached_property
    def work(self) -> Work:
        """What its job takes."""
        counted: Work = resolve(self.step.work)(self)
        return replace(counted, device=self.content.get("device", "cpu"))

    def path(self, output: str | None = None) -> str:
        """Path of one output; the first one where none is named (manifest or rows)."""
        templates = self.step.outputs
        return templates[output or next(iter(templates))].format(**self.wildcards)

    def files(self) -> dict[str, list[str]]:
        """Paths of the inputs by role: what stands for each product.

        What is read of them besides that is under ``<role>_<output>``; committed files are under
        ``resource_<name>``.
        """
        paths: dict[str, list[str]] = {}
        for role, products in self.inputs.items():
            paths[role] = [product.path() for product in products]
            outputs = products[0].step.outputs if products else {}
            for output in ("store", *self.reads.get(role, ())):
                if output in outputs:
                    paths[f"{role}_{output}"] = [product.path(output) for product in products]
        # Those of the clone, wherever the run's working directory is.
        at_clone = {name: os.path.relpath(CLONE / path) for name, path in self.resources.items()}
        return paths | {f"resource_{name}": [path] for name, path in at_clone.items()}


class Graph:
    """All products that a configuration asks for, by rule and wildcards; `steps` by name.

    `notes` are lines for whoever plans a run.
    """

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self.steps = steps
        self.products: dict[tuple[str, tuple[tuple[str, str], ...]], Product] = {}
        self.remembered: dict[tuple[object, ...], tuple[Any, object]] = {}
        self.notes: list[str] = []
        self._by_rule: dict[str, list[Product]] = {}

    def add(
        self,
        rule: str,
        wildcards: Mapping[str, object],
        content: Mapping[str, Any],
        inputs: Mapping[str, Product | Sequence[Product]] | None = None,
        *,
        runs: Iterable[str] = (),
        request: Request | None = None,
        resources: Iterable[str] = (),
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
        runs
            The implementations that the configuration names, each ``"module:object"`` or a module:
            their code, and not that of others in their registries, is part of the code key.
        request
            For what collects other products (tables, figures, the report): its inputs with their
            names, which enter the spec, and its content.
        resources
            Committed files that it reads.
        """
        step, content = self.steps[rule], dict(content)
        reads = dict(step.reads)
        if request:
            inputs = request.inputs
            content |= {"content": request.content, "given": _input_products(request.inputs)}
            reads |= request.reads
        lists = {
            role: [products] if isinstance(products, Product) else list(products)
            for role, products in (inputs or {}).items()
        }
        content["runs"] = [step.script or f"{rule}.py", *runs]
        chained = {role: [product.key for product in products] for role, products in lists.items()}
        spec = canonical_json({**content, "inputs": chained})
        values = {name: str(value) for name, value in wildcards.items()}
        if "{key}" in next(iter(step.outputs.values())):
            values["key"] = spec_key(spec)[:8]
        identity = (rule, tuple(sorted(values.items())))
        if identity not in self.products:
            code = chained_code(
                hash_step(roots(content)),
                (product.code for products in lists.values() for product in products),
            )
            named = _named(resources)
            product = Product(step, values, spec, code, lists, reads, named)
            self.products[identity] = product
            self._by_rule.setdefault(rule, []).append(product)
        return self.products[identity]

    def find(self, rule: str, wildcards: Mapping[str, str]) -> Product:
        """Look a product up; ConfigError if the current configuration does not ask for it."""
        identity = (rule, tuple(sorted(wildcards.items())))
        if identity not in self.products:
            wildcard_text = ", ".join(f"{name}={value}" for name, value in identity[1])
            raise ConfigError(
                f"{rule}({wildcard_text})",
                "the current configuration has no such product",
                "print the paths it has with `bindscope path`, or give its --configfile",
            )
        return self.products[identity]

    def select(self, *rules: str, **wildcards: str) -> list[Product]:
        """All products of some rules with these wildcards, in the order they were added."""
        candidates = self._by_rule.get(rules[0], []) if len(rules) == 1 else self.products.values()
        return [
            product
            for product in candidates
            if product.rule in rules and wildcards.items() <= product.wildcards.items()
        ]

    def drop(self, lost: Iterable[Product]) -> list[Product]:
        """Take out products and all that are made from them; return what was taken out."""
        gone = {id(product) for product in lost}
        for product in self.products.values():  # inputs come before what is made from them
            if any(id(source) in gone for source in product.sources):
                gone.add(id(product))
        removed = [product for product in self.products.values() if id(product) in gone]
        self.products = {at: p for at, p in self.products.items() if id(p) not in gone}
        for rule, products in self._by_rule.items():
            self._by_rule[rule] = [product for product in products if id(product) not in gone]
        return removed

    def leaves(self) -> list[str]:
        """Return what ``rule all`` requests: the path that stands for each leaf."""
        return [product.path() for product in self.products.values() if product.step.leaf]


def roots(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return where the code of a step begins: its script and what its spec names."""
    return tuple(spec["runs"])


def _input_products(inputs: Mapping[str, Sequence[Product]]) -> dict[str, list[dict[str, str]]]:
    """Name the products of each role, with the keys that their rows must show."""
    return {
        role: [
            {**product.wildcards, "spec_key": product.key, "code_key": product.code}
            for product in products
        ]
        for role, products in inputs.items()
    }


def read_inputs(spec: Mapping[str, Any], files: Mapping[str, Sequence[str]]) -> Inputs:
    """Put together what a job that collects products is made from, by its spec.

    `files` are paths by role, as `Product.files` gave them to Snakemake.
    """
    products = {
        role: [
            ProductFiles(
                names, {output: paths[i] for output, paths in _outputs(role, files).items()}
            )
            for i, names in enumerate(listed)
        ]
        for role, listed in spec["given"].items()
    }
    resources = {
        name.removeprefix("resource_"): paths[0]
        for name, paths in files.items()
        if name.startswith("resource_")
    }
    return Inputs(products, spec["content"], resources)


def _outputs(role: str, files: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the files of a role by output; the first is what stands for the products."""
    outputs = {"": files[role]} if role in files else {}
    return outputs | {
        name.removeprefix(f"{role}_"): paths
        for name, paths in files.items()
        if name.startswith(f"{role}_")
    }


def _named(resources: Iterable[str]) -> dict[str, str]:
    """Name committed files; files of the package may have one name in several folders."""
    named: dict[str, str] = {}
    for path in resources:
        folder, _, file = path.rpartition("/")
        name = file.partition(".")[0]
        if path.startswith("src/"):
            name = f"{folder.rpartition('/')[2]}_{name}"
        if named.setdefault(name, path) != path:
            raise ValueError(f"{path} and {named[name]} are both called {name}; rename one")
    return named


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
    def remembering(
        graph: Graph, /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Added:
        assert not named
        key = (add, *(x if isinstance(x, str | int | tuple) else id(x) for x in arguments))
        if key not in graph.remembered:
            # What was given is kept: an identity may be used again when its owner is gone.
            graph.remembered[key] = (add(graph, *arguments, **named), arguments)
        added: Added = graph.remembered[key][0]
        return added

    return remembering
