"""Damaged safetensors and stores: what was written is read, or one error says what is wrong."""

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from bindscope.config.models import Pretrained
from bindscope.core.errors import BindscopeError
from bindscope.models.loading import load_model


@st.composite
def damages(draw):
    """A change of a file's bytes: flipped, cut, longer, with noise in it, or other bytes."""
    place, bit = draw(st.floats(0, 1, exclude_max=True)), draw(st.integers(0, 7))
    noise = draw(st.binary(min_size=1, max_size=20))
    how = draw(st.sampled_from(["flip", "cut", "longer", "noise", "other"]))

    def change(content: bytes) -> bytes:
        at = int(place * len(content))
        if how == "flip":
            return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        if how == "noise":
            return content[:at] + noise + content[at + len(noise) :]
        return {"cut": content[:at], "longer": content + noise, "other": noise}[how]

    return change


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The weights of a small model of timm as safetensors."""
    import timm

    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    path.write_bytes(save(timm.create_model("test_vit").state_dict()))
    return path


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(change=damages(), header=st.booleans())
def test_damaged_weights_of_a_user_load_or_are_refused(weights, change, header):
    """Their numbers have no checksum, but a header that is damaged is told in one message."""
    weights = weights.read_bytes()
    size = 8 + int.from_bytes(weights[:8], "little")
    content = change(weights[:size]) + weights[size:] if header else change(weights)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.safetensors"
        path.write_bytes(content)
        config = Pretrained(name="w", source=f"timm:test_vit:path:{path}", n_layers=6)
        with suppress(BindscopeError):  # which has a remedy; anything else fails the test
            load_model(config, None, "cpu")
