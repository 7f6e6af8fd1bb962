"""Numbers too small for full precision are zero during a fit, and only then."""

import pytest
import torch
from probe_problems import probe, problem

from bindscope.fitting import denormals
from bindscope.studies.binding_information.probes import fitting
from bindscope.studies.binding_information.probes.fitting import fit

SMALL = 1e-39


def keeps_denormals():
    """Whether a number below the least with full precision survives a product."""
    return bool((torch.full((8,), SMALL) * 1.0).ne(0).all())


def test_they_are_zero_inside_and_not_after_even_of_an_error():
    def fail():
        assert not keeps_denormals()
        raise ZeroDivisionError

    assert keeps_denormals()
    with pytest.raises(ZeroDivisionError), denormals.flushed():
        fail()
    assert keeps_denormals()


def test_a_fit_flushes_them(monkeypatch):
    observed = []
    plain = fitting.make_source

    def watched(*arguments):
        observed.append(keeps_denormals())
        return plain(*arguments)

    monkeypatch.setattr(fitting, "make_source", watched)
    fit(probe("quadratic", steps=1), problem(), [0])
    assert observed == [False]
    assert keeps_denormals()
