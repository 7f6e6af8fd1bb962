"""Where a row of a table comes from: codes, weights, configuration, and how to make it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bindscope.core.digests import check_file, file_problem
from bindscope.core.errors import InputError, snakemake_command
from bindscope.core.files import read_json
from bindscope.core.graph import Graph, Product
from bindscope.tables.write import name_of

_TEXT = 100  # characters of a configuration's line


def show(graph: Graph, table: Path, number: int) -> str:
    """Describe the chain of products behind a row.

    Parameters
    ----------
    graph
        All products of the configuration that the table was made with.
    table
        A table, ``results/tables/<name>.parquet``.
    number
        The row, from 0, as pandas counts.

    Raises
    ------
    BindscopeError
        If there is no such row, or the configuration has no product with the row's key.
    """
    row = _row(table, number)
    product = _product(graph, table, row)
    command = "--forcerun " * Path(product.path()).exists() + product.path()
    lines = [
        f"{table}, row {number}: {_heading(row, product)}",
        "",
        f"made by rule {product.rule}: {product.path()}",
        f"  configuration key {product.key[:16]}, code {product.code}{_changed(row, product)}",
        *(f"  {name}: {text}" for name, text in _configured(product.content)),
        *(f"  {line}" for line in _weights(product)),
        "",
        "from, in this order",
        *_chain(product),
        "",
        "make it again, and what is missing before it",
        f"  {snakemake_command(command)}",
    ]
    return "\n".join(lines)


def _row(table: Path, number: int) -> dict[str, Any]:
    if table.suffix != ".parquet":
        raise InputError(str(table), "is no Parquet file", f"name {table.with_suffix('.parquet')}")
    if not table.is_file():
        tables = ", ".join(
            str(path) for path in sorted(Path("results/tables").glob("*.parquet"))[:5]
        )
        raise InputError(str(table), "there is no such table", f"choose {tables or '`make run`'}")
    check_file(table)
    name_of(table)  # refuses other Parquet files
    frame = pd.read_parquet(table)
    if not 0 <= number < len(frame):
        raise InputError(
            str(table), f"has no row {number}", f"choose a row from 0 to {len(frame) - 1}"
        )
    return {str(name): value for name, value in frame.iloc[number].items()}


def _product(graph: Graph, table: Path, row: Mapping[str, Any]) -> Product:
    """Return the product that the row's configuration key names."""
    for product in graph.products.values():
        if product.key == row["spec_key"]:
            return product
    key = str(row["spec_key"])[:8]
    raise InputError(
        str(table),
        f"the configuration has no product with the row's key {key}",
        "give the configuration that made the table: --configfile FILE; if it was edited since, "
        "`make run` with it makes the table again",
    )


def _heading(row: Mapping[str, Any], product: Product) -> str:
    """Return what of the product's names the row repeats, and its seed."""
    return ", ".join(f"{key} {row[key]}" for key in row if key in {*product.wildcards, "seed"})


def _changed(row: Mapping[str, Any], product: Product) -> str:
    if row["code_key"] == product.code:
        return ""
    return f" now; the row was made by other code, {row['code_key']}"


def _configured(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the configuration slice of a product without what stands for other products."""
    for name, value in spec.items():
        if name not in ("inputs", "runs", "given"):
            text = json.dumps(value)
            yield name, text if len(text) <= _TEXT else f"{text[:_TEXT]} ..."
    yield "code of", ", ".join(spec["runs"])


def _upstream(product: Product) -> list[Product]:
    """Return all products that this one is made from, those first that others are made from."""
    order: dict[int, Product] = {}

    def visit(maker: Product) -> None:
        for source in maker.sources:
            if id(source) not in order:
                visit(source)
                order[id(source)] = source

    visit(product)
    return list(order.values())


def _weights(product: Product) -> Iterator[str]:
    """Yield what the manifests of the chain say of models' weights."""
    listed: set[str] = set()
    for source in _upstream(product):
        path = Path(source.path())
        if path.suffix != ".json" or "model" not in source.wildcards or not path.is_file():
            continue
        content = read_json(path, snakemake_command(f"--forcerun {path}"))
        attributes = {**content, **content.get("attributes", {})}
        digest = attributes.get("weights_sha256")
        if digest and digest not in listed:
            listed.add(digest)
            revision = attributes.get("revision", "")
            yield f"weights of {source.wildcards['model']}: sha256 {digest} ({revision})"


def _chain(product: Product) -> Iterator[str]:
    """Yield a line per rule and dataset of the chain: how many products, and the first one."""
    groups: dict[tuple[str, str], list[Product]] = {}
    for source in [*_upstream(product), product]:
        entities = " ".join(source.wildcards.get(key, "") for key in ("dataset", "model"))
        groups.setdefault((source.rule, entities), []).append(source)
    for (rule, _), products in groups.items():
        bad = [each.path() for each in products if file_problem(each.path())]
        more = f" and {len(products) - 1} more" * (len(products) > 1)
        state = f"; {len(bad)} not there or changed" * bool(bad)
        yield f"  {rule:24s} {products[0].path()}{more}{state}"
