"""What `bindscope verify` takes for bad; the command itself: tests/workflow/test_commands.py."""

from types import SimpleNamespace

import numpy as np
import pytest

from bindscope.commands.verify import verify_products
from bindscope.core.files import write_json
from bindscope.core.store.listing import entry
from bindscope.core.store.manifest import read_manifest
from bindscope.core.store.writer import write_arrays


class Products:
    """A graph of a store and its index; the store is of the rule given."""

    def __init__(self, rule, folder):
        self.rules = {rule: "x", "index": "i"}
        outputs = {rule: ("manifest", "store"), "index": ("index",)}
        self.steps = {name: SimpleNamespace(name=name, outputs=outputs[name]) for name in outputs}
        self.folder = folder

    def of(self, *rules):
        """Return the products of some rules."""
        return [
            SimpleNamespace(rule=rule, path=lambda output="json", name=name: str(
                self.folder / f"{name}.{'zarr' if output == 'store' else 'json'}"))
            for rule, name in self.rules.items() if rule in rules
        ]  # fmt: skip


@pytest.fixture(params=["patches", "patches_temporary", "sampled_temporary"])
def products(request, tmp_path):
    arrays = {"a": np.zeros((3, 2), np.float32)}
    write_arrays(tmp_path / "x.zarr", tmp_path / "x.json", arrays, spec="{}", code="c")
    listed = entry(read_manifest(tmp_path / "x.json"), tmp_path)
    write_json(tmp_path / "i.json", {"splits": {"train": {"shards": [listed]}}})
    return Products(request.param, tmp_path)


def test_sound(products, capsys):
    assert verify_products(products, repair=False) == 0
    assert capsys.readouterr().out == "1 stores checked, 0 bad\n"


def test_a_manifest_that_is_gone_is_bad_where_an_index_names_it(products, capsys):
    (products.folder / "x.json").unlink()
    assert verify_products(products, repair=False) == 1
    printed = capsys.readouterr()
    assert printed.out == "1 stores checked, 1 bad\n"
    assert f"x.json: the manifest is missing, and {products.folder}/i.json names it" in printed.err
    assert f"--forcerun {products.folder}/x.json" in printed.err
    (products.folder / "i.json").unlink()
    assert verify_products(products, repair=False) == 0  # not made yet


def test_a_store_that_snakemake_removes_after_use_may_be_gone(products, capsys):
    (products.folder / "x.zarr").rename(products.folder / "gone")
    temporary = "patches" not in products.rules
    assert verify_products(products, repair=False) == (not temporary)
    assert ("the store is missing" in capsys.readouterr().err) != temporary


def test_an_index_older_than_its_store_is_bad(products, capsys):
    arrays = {"a": np.ones((3, 2), np.float32)}
    folder = products.folder
    write_arrays(folder / "x.zarr", folder / "x.json", arrays, spec="{}", code="c")
    assert verify_products(products, repair=False) == 1
    printed = capsys.readouterr()
    assert printed.out == "1 stores checked, 1 bad\n"
    assert "i.json: is older than" in printed.err
    assert f"--forcerun {folder}/i.json" in printed.err
