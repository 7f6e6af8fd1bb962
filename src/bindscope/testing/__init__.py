"""Checks of what other packages add: call them from the tests of such a package."""

from bindscope.testing.engine_checks import check_engine
from bindscope.testing.model_checks import check_model
from bindscope.testing.probe_checks import check_probe

__all__ = ["check_engine", "check_model", "check_probe"]
