"""Checks of what other packages add: call them from the tests of such a package."""

from bindscope.models.checks import check_model
from bindscope.studies.binding_id.engine_checks import check_engine
from bindscope.studies.binding_information.probe_checks import check_probe

__all__ = ["check_engine", "check_model", "check_probe"]
