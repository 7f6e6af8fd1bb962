"""`bindscope show`: a row's chain, by its keys, on a table whose row a fit of ci.yaml product."""

import json
from pathlib import Path

import pytest
import sample_tables

from bindscope.cli import main
from bindscope.config.loading import load_file
from bindscope.core.digests import write_digests
from bindscope.core.graph import Product
from bindscope.studies.build import build
from bindscope.studies.datasets.tables import PRIORS
from bindscope.tables.write import write_table

CI = Path(__file__).parents[2] / "config/presets/ci.yaml"

KEYS = {"spec_key": "0" * 64, "code_key": "0:0"}


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Product:
    """Two rows in a folder of results: the first is this fit's, the second of unknown keys."""
    monkeypatch.chdir(tmp_path)
    product = build(load_file(CI)).select("fit", model="vit", layer="1", probe="linear")[0]
    frame = sample_tables.priors_table()
    frame.loc[frame.index[0], ["spec_key", "code_key"]] = [product.key, product.code]
    write_table(frame, "results/tables/priors", PRIORS.schema)
    write_digests(["results/tables/priors.parquet"], KEYS)
    index = Path(product.files()["index"][0])
    index.parent.mkdir(parents=True)
    facts = {"weights_sha256": "5e" * 32, "revision": "seed 0 of somewhere"}
    index.write_text(json.dumps({"attributes": facts}))
    return product


def show(row: str, table: str = "results/tables/priors.parquet") -> int:
    return main(["show", table, row, "--configfile", str(CI)])


def test_a_row_is_traced_to_codes_weights_and_command(
    fit: Product, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show("0") == 0
    output = capsys.readouterr().out
    assert f"made by rule fit: {fit.path()}" in output
    assert "other code" not in output
    assert f"weights of vit: sha256 {'5e' * 32} (seed 0 of somewhere)" in output
    assert 'representation: {"layer": 1, "tokens": "cls"}' in output
    chain = [line.split()[0] for line in output.partition("in this order\n")[2].splitlines()[:9]]
    assert chain.index("codes") < chain.index("labels") < chain.index("fit")
    assert chain.index("training") < chain.index("pooled") < chain.index("index")
    assert "results/codes/tiny/train-" in output
    command = output.splitlines()[-1]
    assert command.startswith(f"  snakemake --cores all {fit.path()} --configfile ")
    Path(fit.path()).parent.mkdir(parents=True)
    Path(fit.path()).touch()
    assert show("0") == 0
    assert f"--forcerun {fit.path()}" in capsys.readouterr().out


def test_a_row_of_other_code_says_so(fit: Product, capsys: pytest.CaptureFixture[str]) -> None:
    frame = sample_tables.priors_table()
    frame.loc[frame.index[0], "spec_key"] = fit.key
    write_table(frame, "results/tables/priors", PRIORS.schema)
    write_digests(["results/tables/priors.parquet"], KEYS)
    assert show("0") == 0
    assert "now; the row was made by other code, cdcdcdcdcdcdcdcd:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "table", "message"),
    [
        ("1", "priors.parquet", "has no product with the row's key abababab"),
        ("6", "priors.parquet", "has no row 6\n  remedy: choose a row from 0 to 5"),
        ("0", "priors.csv", "is no Parquet file\n  remedy: name results/tables/priors.parquet"),
        ("0", "prior.parquet", "no such table\n  remedy: choose results/tables/priors.parquet"),
    ],
)
def test_what_cannot_be_traced_is_one_message(
    row: str, table: str, message: str, fit: Product, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(row, f"results/tables/{table}") == 1
    assert message in capsys.readouterr().err


def test_a_table_that_was_changed_is_refused(
    fit: Product, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("results/tables/priors.parquet")
    path.write_bytes(path.read_bytes() + b"x")
    assert show("0") == 1
    assert "its digest differs" in capsys.readouterr().err
