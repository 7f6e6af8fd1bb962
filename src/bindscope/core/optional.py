"""Libraries that are extras, in the one version whose results are known."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bindscope.core.errors import ConfigError


def import_version(name: str, version: str, where: str, package: str, instead: str) -> Any:
    """Import a library; ConfigError if it is not installed in this version.

    Parameters
    ----------
    name, version
        What is imported.
    where
        Place in the configuration that needs it.
    package
        What pip calls it.
    instead
        What the configuration may name otherwise.
    """
    remedy = f"pip install {package}=={version}"
    try:
        library = import_module(name)
    except ImportError as error:
        raise ConfigError(
            where, f"{name} is not installed ({error})", f"{remedy}, or {instead}"
        ) from error
    if library.__version__ != version:
        raise ConfigError(
            where, f"version {library.__version__} is installed, not {version}", remedy
        )
    return library
