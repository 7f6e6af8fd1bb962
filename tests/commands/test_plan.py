"""`bindscope plan` for a user who may only read the results of others; runs: test_commands.py."""

from pathlib import Path

import pytest

from bindscope.commands import plan
from bindscope.commands.plan import _writable_folder


def test_who_may_only_read_plans_in_a_folder_of_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("results", ".snakemake"):
        (tmp_path / name).mkdir()
    (tmp_path / "Snakefile").write_text("rule all:\n")
    with _writable_folder() as folder:
        assert folder == tmp_path
    monkeypatch.setattr(plan.os, "access", lambda *_: False)
    with _writable_folder() as folder:
        assert folder != tmp_path
        assert {path.name for path in folder.iterdir()} == {"results", "Snakefile"}
        assert all(path.samefile(tmp_path / path.name) for path in folder.iterdir())
    assert not folder.exists()
    assert (tmp_path / "results").is_dir()
