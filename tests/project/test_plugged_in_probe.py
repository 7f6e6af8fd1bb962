"""A probe family of another package: one file and an entry point, no file of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

from packages import install

ROOT = Path(__file__).parents[2]
FAMILY = '''
    """Cubic family: logit_k = sum_r <a_kr, x> <b_kr, x> <c_kr, x> / sqrt(dim x) + b_k."""

    from typing import Literal

    from cubic_probe.defaults import RANK

    from bindscope.studies.binding_information.families import RankedProbe, Label


    class CubicProbe(RankedProbe):
        """A low-rank form of degree three per head."""

        label = Label("cubic", "a cubic probe", "#882255")

        family: Literal["cubic"]
        rank: int = RANK

        @classmethod
        def load(cls):
            import torch
            from torch import nn

            from bindscope.studies.binding_information.probes.module import (
                Family, Projection, initial_rows, sum_of_products,
            )

            class Cubic(Family):
                def __init__(self, config, heads, shape, generator):
                    super().__init__(config, heads, shape, generator)
                    factors = [
                        initial_rows(shape.dim, heads, config.rank, generator)
                        for _ in range(3)
                    ]
                    if self.starts_at_zero:
                        factors[-1].zero_()
                    self.factor = self.scale(shape.dim)
                    rows = torch.stack(factors, dim=1)
                    self.factors = Projection(rows, heads, batch_last=True)
                    self.bias = nn.Parameter(torch.zeros(heads.count))

                def term(self, inputs, bits):
                    factors = self.factors(self.read(inputs, bits))
                    return sum_of_products(factors) * self.factor + self.bias

            return Cubic
'''
USE = """
    import json, sys
    from pathlib import Path

    import yaml

    import bindscope as bs
    from bindscope.config.loading import load_config
    from bindscope.core.errors import BindscopeError
    from bindscope.core.graph import roots
    from bindscope.core.keys import closure
    from bindscope.studies.build import build
    from bindscope.testing import check_probe

    raw = yaml.safe_load(Path("config/presets/ci.yaml").read_text())
    section = raw["studies"]["binding_information"]
    section["probes"].append({"name": "cubic", "family": "cubic", "targets": ["chained"]})
    section["fits"] = section["fits"][:1]
    section["fits"][0] |= {"probes": ["cubic"], "tokens": ["cls", "mean"]}
    answers = {}
    if sys.argv[1] == "use":
        check_probe("cubic", rank=2)
        data = bs.example("matching", n=300)
        probe = {"family": "cubic", "rank": 2, "steps": 10}
        result = bs.binding_information(data.arrays["pairs"], data.objects, space=data.space,
                                        probes=[probe])
        answers["bits"] = float(result.best["feature_lower_bound_bits"])
        answers["printed"] = str(result)
    try:
        graph = build(load_config(raw, "run.yaml"))
        fits = graph.select("fit", probe="cubic")
        spec = json.loads(fits[0].spec)
        answers["code"] = fits[0].code
        answers["files"] = sorted(name for name in closure(roots(spec)).files if "cubic" in name)
        answers["rank"] = spec["probe"]["rank"]
        (figure,) = graph.select("figure", figure="tokens")
        answers["words"] = json.loads(figure.spec)["content"]["families"]["cubic"][1]
    except BindscopeError as error:
        answers["error"] = str(error)
    print(json.dumps(answers))
"""


def install_family(folder: Path, entry_point: str = "cubic_probe.family:CubicProbe") -> None:
    package = folder / "cubic_probe"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "defaults.py").write_text("RANK = 4\n")
    (package / "family.py").write_text(dedent(FAMILY))
    install(folder, "cubic-probe", "bindscope.probes", {"cubic": entry_point})


def ask(folder: Path, how: str = "plan") -> dict[str, Any]:
    """Use the family in another process, from whose path the package is loaded."""
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:pydantic", "-c", dedent(USE), how],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_a_family_of_another_package_is_checked_fitted_and_planned(tmp_path: Path) -> None:
    install_family(tmp_path)
    answers = ask(tmp_path, "use")
    assert "error" not in answers
    assert answers["bits"] > 1
    assert "cubic" in answers["printed"]
    assert answers["words"] == "a cubic probe"
    assert answers["rank"] == 4
    assert answers["files"] == ["cubic_probe.defaults", "cubic_probe.family"]
    (tmp_path / "cubic_probe" / "defaults.py").write_text("RANK = 4\nOTHER = 1\n")
    assert ask(tmp_path)["code"] != answers["code"]


def test_a_wrong_plug_in_is_one_message(tmp_path: Path) -> None:
    install_family(tmp_path, "cubic_probe.gone:CubicProbe")
    error = ask(tmp_path)["error"]
    assert "studies.binding_information.probes" in error
    assert "cannot be imported: ModuleNotFoundError" in error
    assert "cubic-probe" in error
