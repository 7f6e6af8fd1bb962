"""Errors that a user can act on: what is wrong, where, and what to do about it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

DECIDES_NOTHING = True

# Set by the Snakefile and inherited by its jobs: a command that a message names needs it.
CONFIGFILES = "BINDSCOPE_CONFIGFILES"
_LONGEST = 300  # characters of a message of another library


def remember_configfiles(files: Sequence[str | os.PathLike[str]]) -> None:
    """Let the messages of this process and of those it starts name these files."""
    os.environ[CONFIGFILES] = shlex.join(os.path.relpath(file) for file in files)


def snakemake_command(arguments: str) -> str:
    """Return a `snakemake` command line with the configuration files of this run."""
    files = os.environ.get(CONFIGFILES)
    return f"snakemake --cores all {arguments}" + (f" --configfile {files}" if files else "")


def first_line(error: BaseException) -> str:
    """Return the first line of what an error of a library says; its type where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:_LONGEST] if lines else type(error).__name__


class BindscopeError(Exception):
    """A problem the user can mend.

    Parameters
    ----------
    where
        The file, or the configuration key, that is at fault.
    problem
        What is wrong with it, in one sentence.
    remedy
        What to do, as a command or a configuration change.
    """

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        super().__init__(f"{where}: {problem}\n  remedy: {remedy}")
        self.where, self.problem, self.remedy = where, problem, remedy


class ConfigError(BindscopeError):
    """The configuration asks for something that cannot be done."""


class StoreError(BindscopeError):
    """A store or another product on disk is missing, damaged or of another configuration."""


class ModelError(BindscopeError):
    """A model cannot be loaded or does not have what was asked of it."""


class InputError(BindscopeError):
    """Data that a user gave (labels, images, an archive) are not as they must be."""
