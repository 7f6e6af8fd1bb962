"""Errors that a user can act on: what is wrong, where, and what to do about it."""

from __future__ import annotations


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
