"""What `bindscope verify` takes for bad; the command itself: tests/workflow/test_commands.py."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from bindscope.commands import verify as command
from bindscope.commands.verify import verify_products
from bindscope.core.digests import digests_path, write_digests
from bindscope.core.errors import StoreError
from bindscope.core.files import write_json
from bindscope.core.store.listing import entry
from bindscope.core.store.manifest import read_manifest
from bindscope.core.store.writer import write_arrays

SOUND = "3 products checked, 1 of them stores; 0 bad\n"
KEYS = {"spec_key": "5" * 64, "code_key": "own:chained"}
BAD = SOUND.replace("0 bad", "1 bad")


class Products:
    """A graph of a store, its index and the rows of a fit; the store is of the rule given."""

    def __init__(self, rule, folder):
        self.rule, self.folder = rule, folder
        rules = {
            rule: {"manifest": "x.json", "store": "x.zarr"},
            "index": {"index": "i.json"},
            "fit": {"rows": "f.jsonl", "details": "f.details.safetensors"},
        }
        self.products = {
            name: SimpleNamespace(
                rule=name,
                step=SimpleNamespace(outputs=files),
                sources=[],
                wildcards={"key": ""},
                keys=KEYS,
                key=KEYS["spec_key"],
                path=lambda output=None, files=files: str(
                    folder / files[output or next(iter(files))]
                ),
            )
            for name, files in rules.items()
        }
        self.products["index"].sources = [self.products[rule]]

    def select(self, *rules):
        """Return the products of some rules."""
        return [product for name, product in self.products.items() if name in rules]

    def store(self, value):
        """Write the store again."""
        arrays = {"a": np.full((3, 2), value, np.float32)}
        manifest = self.folder / "x.json"
        write_arrays(self.folder / "x.zarr", manifest, arrays, spec="{}", code="c")
        write_digests([str(manifest), str(self.folder / "x.zarr")], KEYS)


@pytest.fixture(params=["patches", "patches_temporary"])
def products(request, tmp_path):
    filled = Products(request.param, tmp_path)
    filled.store(0)
    listed = entry(read_manifest(tmp_path / "x.json"), tmp_path)
    write_json(tmp_path / "i.json", {"splits": {"train": {"shards": [listed]}}})
    write_digests([str(tmp_path / "i.json")], KEYS)
    (tmp_path / "f.jsonl").write_text("{}\n")
    (tmp_path / "f.details.safetensors").write_bytes(bytes(20))
    write_digests([str(tmp_path / "f.jsonl"), str(tmp_path / "f.details.safetensors")], KEYS)
    return filled


def test_sound(products, capsys):
    assert verify_products(products, repair=False) == 0
    assert capsys.readouterr() == (SOUND, "")


@pytest.mark.parametrize("name", ["f.jsonl", "f.details.safetensors", "x.json", "i.json"])
@pytest.mark.parametrize("how", ["flipped", "deleted", "its digests deleted"])
def test_a_file_of_any_kind(name, how, products, capsys):
    """Rows and manifests, listings, and what no other job reads."""
    path = products.folder / name
    content = path.read_bytes()
    if how == "flipped":
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    else:
        (path if how == "deleted" else digests_path(path)).unlink()
    assert verify_products(products, repair=False) == 1
    printed = capsys.readouterr()
    assert printed.out == BAD
    assert f"{path}: " in printed.err
    first = "f.jsonl" if name.startswith("f.") else name
    assert f"--forcerun {products.folder / first}" in printed.err


def test_a_manifest_that_is_gone_is_bad_where_an_index_was_made_of_it(products, capsys):
    for name in ("x.json", "x.sha256"):
        (products.folder / name).unlink()
    shutil.rmtree(products.folder / "x.zarr")
    assert verify_products(products, repair=False) == 1
    printed = capsys.readouterr()
    assert "; 1 bad" in printed.out
    assert f"x.json: is missing, and {products.folder}/i.json was made of it" in printed.err
    assert f"--forcerun {products.folder}/x.json" in printed.err
    for name in ("i.json", "i.sha256"):
        (products.folder / name).unlink()
    assert verify_products(products, repair=False) == 0  # not made yet


def test_a_store_that_snakemake_removes_after_use_may_be_gone(products, capsys):
    (products.folder / "x.zarr").rename(products.folder / "gone")
    temporary = products.rule.endswith("_temporary")
    assert verify_products(products, repair=False) == (not temporary)
    assert ("the store is missing" in capsys.readouterr().err) != temporary


OTHER_INPUTS = KEYS | {"spec_key": "6" * 64}
OTHER_CODE = KEYS | {"code_key": "other:code"}


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (
            lambda products: write_digests([str(products.folder / "i.json")], OTHER_INPUTS),
            "made from another configuration or other inputs",
        ),
        (
            lambda products: write_digests([str(products.folder / "i.json")], OTHER_CODE),
            "made by other code",
        ),
        (lambda products: products.store(1), "is older than"),
    ],
)
def test_an_index_of_other_stores_or_made_by_others_is_bad(spoil, why, products, capsys):
    spoil(products)
    assert verify_products(products, repair=False) == 1
    printed = capsys.readouterr()
    assert printed.out == BAD
    assert f"i.json: {why}" in printed.err
    assert f"--forcerun {products.folder}/i.json" in printed.err


def test_a_folder_without_results_is_no_sound_one(products, tmp_path):
    for path in tmp_path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(StoreError, match="holds no product of this configuration"):
        verify_products(products, repair=False)


def test_a_repair_deletes_all_of_a_bad_product_before_the_run(products, capsys, monkeypatch):
    """Were it interrupted, nothing damaged would be left to be taken for whole."""
    started = []
    monkeypatch.setattr(command, "run", lambda root, arguments: started.append(arguments) or 0)
    monkeypatch.chdir(products.folder)
    (products.folder / "f.details.safetensors").write_bytes(bytes(19))
    assert verify_products(products, repair=True) == 0
    assert {path.name for path in products.folder.iterdir()} == {
        "x.json",
        "x.sha256",
        "x.zarr",
        "i.json",
        "i.sha256",
    }
    rows = str(products.folder / "f.jsonl")
    assert started == [["--cores", "all", "--forcerun", rows]]
    assert f"deleted {rows}\n" in capsys.readouterr().out
