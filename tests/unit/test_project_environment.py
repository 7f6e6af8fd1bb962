"""The environment that `make` builds: when it is built, from what, and what is said if it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bindscope.commands import environment
from bindscope.core.errors import BindscopeError

HERE = Path(sys.prefix)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "requirements.lock").write_text("torch==2.13.0\nzarr==3.1.6\n    # via x\n")
    (tmp_path / "pyproject.toml").write_text("")
    return tmp_path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace what takes minutes by a record of it."""
    made: list[str] = []

    def build(root: Path, venv: Path, n_packages: int) -> None:
        (venv / "bin").mkdir(parents=True, exist_ok=True)
        environment.python(venv).touch()
        made.append(f"build {n_packages}")

    monkeypatch.setattr(environment, "_build", build)
    monkeypatch.setattr(environment, "_pip", lambda *_: made.append("install"))
    return made


def test_built_once_and_again_when_the_lock_changes(clone: Path, calls: list[str]) -> None:
    environment.ensure(clone, Path(".venv"))
    environment.ensure(clone, Path(".venv"))
    assert calls == ["build 2", "install"]
    lock = clone / "requirements.lock"
    lock.write_text(lock.read_text() + "numpy==2.4.6\n")
    environment.ensure(clone, Path(".venv"))
    assert calls == ["build 2", "install", "build 3", "install"]


def test_a_lock_that_the_environment_holds_rebuilds_nothing(
    clone: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.ensure(clone, Path(".venv"))
    monkeypatch.setattr(environment, "holds", lambda *_: True)
    (clone / "requirements.lock").write_text("# only a comment\ntorch==2.13.0\nzarr==3.1.6\n")
    environment.ensure(clone, Path(".venv"))
    assert calls == ["build 2", "install", "install"]


def test_a_moved_clone_is_set_up_again(clone: Path, calls: list[str], tmp_path: Path) -> None:
    environment.ensure(clone, Path("a"))
    (clone / "a").rename(clone / "b")
    environment.ensure(clone, Path("b"))
    assert calls.count("build 2") == 2


def test_an_interrupted_build_is_not_taken_for_one(clone: Path, calls: list[str]) -> None:
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/pyvenv.cfg").touch()
    environment.ensure(clone, Path(".venv"))
    assert calls == ["build 2", "install"]


def test_what_an_environment_holds() -> None:
    pins = environment.read_pins(Path("requirements.lock"))
    some = {name: pins[name] for name in ("torch", "torchvision", "zarr", "snakemake")}
    assert environment.holds(HERE, some)
    assert not environment.holds(HERE, {**some, "zarr": "3.1.5"})
    assert not environment.holds(HERE, {**some, "no-such-package": "1"})
    assert not environment.holds(Path("no/such/environment"), some)


def test_only_environments_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    with pytest.raises(BindscopeError, match="is no virtual environment"):
        environment._remove(folder)
    assert (folder / "thesis.tex").exists()
    (folder / "pyvenv.cfg").touch()
    environment._remove(folder)
    assert not folder.exists()


class Machine:
    """What `torch_index` looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nvidia, self.wheel, self.online = False, False, True
        monkeypatch.delenv("TORCH_INDEX", raising=False)
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(environment, "has_nvidia", lambda: self.nvidia)
        monkeypatch.setattr(environment, "reachable", lambda *_: self.online)
        monkeypatch.setattr(environment.subprocess, "run", self._pip)

    def _pip(self, command: list[str], **_: object) -> object:
        assert "--no-index" in command
        assert command[-1] == "torch==2.13.0"
        return type("Done", (), {"returncode": 0 if self.wheel else 1})

    def index(self) -> list[str]:
        """Ask for pip's options."""
        return environment.torch_index(HERE, "torch==2.13.0")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_no_device_takes_the_index_of_cpu_builds(machine: Machine) -> None:
    assert machine.index() == ["--extra-index-url", environment.CPU_INDEX]


def test_a_device_or_a_wheel_at_hand_takes_no_index(machine: Machine) -> None:
    machine.nvidia = True
    assert machine.index() == []
    machine.nvidia, machine.wheel = False, True
    assert machine.index() == []


def test_an_index_that_cannot_be_reached_is_left_out_and_named(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.online = False
    assert machine.index() == []
    assert f"{environment.CPU_INDEX} cannot be reached" in capsys.readouterr().out


def test_the_user_decides_if_he_wants(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_INDEX", "https://example.org/whl")
    assert machine.index() == ["--extra-index-url", "https://example.org/whl"]
    monkeypatch.setenv("TORCH_INDEX", "")
    assert machine.index() == []


def test_no_index_on_other_systems(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert machine.index() == []


def test_a_failing_pip_is_told_with_its_last_words(tmp_path: Path) -> None:
    python = environment.python(tmp_path)
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'ERROR: no such host'\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(BindscopeError, match="exit code 3") as caught:
        environment._pip(tmp_path, ["install"], tmp_path)
    assert "no such host" in caught.value.problem
    assert (tmp_path / environment.LOG).read_text() == "ERROR: no such host\n"


def test_progress_names_large_downloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = environment.python(tmp_path)
    python.parent.mkdir()
    python.write_text(
        "#!/bin/sh\n"
        "echo '  Downloading scipy-1.17.1-cp311-cp311-manylinux_2_28_x86_64.whl (35.2 MB)'\n"
        "echo '  Downloading yte-1.9.4-py3-none-any.whl (7.8 kB)'\n"
        "echo 'Installing collected packages: scipy'\n"
    )
    python.chmod(0o755)
    environment._pip(tmp_path, ["install"], tmp_path)
    assert capsys.readouterr().out == "  downloading scipy-1.17.1, 35.2 MB\n  installing\n"


def test_a_full_disk_is_told_before_anything_is_downloaded(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(clone)
    full = environment.shutil.disk_usage(clone)._replace(free=1)
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda _: full)
    assert environment.main([".venv"]) == 1
    assert "0.0 GB are free" in capsys.readouterr().err
    assert not (clone / ".venv").exists()


def test_outside_a_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert environment.main([]) == 1
    assert "run this in the folder of the clone" in capsys.readouterr().err
