"""Damaged safetensors and stores: what was written is read, or one error says what is wrong."""

import tempfile
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from bindscope.config.models import Pretrained
from bindscope.core.errors import BindscopeError, StoreError
from bindscope.core.store.reader import open_store
from bindscope.core.store.verify import verify
from bindscope.core.store.writer import write_arrays
from bindscope.models.loading import load_model

VALUES = {
    "floats": np.arange(60, dtype=np.float32).reshape(12, 5),
    "bytes": np.arange(48, dtype=np.uint8).reshape(12, 4),
}


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


@settings(max_examples=60, deadline=None)
@given(damages(), st.integers(0, 100))
def test_a_damaged_store_is_refused_or_reads_as_it_was_written(change, number):
    """Any file of it: chunks, zarr.json of arrays and group, the manifest."""
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        manifest = Path(folder) / "x.json"
        write_arrays(Path(folder) / "x.zarr", manifest, VALUES, spec="{}", code="c")
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        path = files[number % len(files)]
        whole = path.read_bytes()
        path.write_bytes(change(whole))
        same = path.read_bytes() == whole
        problems = verify(manifest)
        # A manifest is compared by what it says, so a space more is none: a job compares its bytes.
        assert (problems == []) == same or (path == manifest and not problems)
        refused = _refusal(manifest)
        assert refused is None or (problems and refused.remedy)


def _refusal(manifest):
    """Read a store that must hold what was written; return the error where it does not open."""
    try:
        store = open_store(manifest)
        read = {name: store.read(name) for name in VALUES}
    except StoreError as error:
        return error
    for name, values in VALUES.items():
        np.testing.assert_array_equal(read[name], values)
    return None


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
