"""Round trips through a store, for any shape, type and size of pieces."""

import itertools
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bindscope.core.store.dtypes import FLOATS, from_bfloat16, storage_dtype, to_bfloat16
from bindscope.core.store.manifest import ArrayLayout
from bindscope.core.store.reader import open_store
from bindscope.core.store.verify import verify
from bindscope.core.store.writer import StoreWriter

DTYPES = ("uint8", "int16", "int64", "bool", "float16", "bfloat16", "float32", "float64")
side = st.integers(1, 5)


@st.composite
def partitions(draw, n):
    """The rows 0 to n in pieces, some of them empty."""
    cuts = sorted([0, n, *draw(st.lists(st.integers(0, n), max_size=4))])
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


@st.composite
def cases(draw):
    n, axis = draw(st.integers(1, 30)), draw(st.sampled_from([0, 0, 1]))
    before, after = [draw(side)] * axis, draw(st.lists(side, max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = rng.standard_normal((*before, n, *after)) * 100
    if dtype not in FLOATS:
        values = values.astype(dtype if dtype != "uint8" else "int64") % 2
    start, stop = sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    return values, dtype, axis, draw(partitions(n)), slice(start, stop)


def as_read(values, dtype):
    """What comes back for values that were written."""
    if dtype == "bfloat16":
        return from_bfloat16(to_bfloat16(values))
    return values.astype(dtype)


@settings(max_examples=30, deadline=None)
@given(cases(), st.sampled_from([1, 64, 1 << 21]))
def test_what_is_written_is_read(case, chunk_bytes):
    values, dtype, axis, pieces, part = case
    expected = as_read(values, dtype)
    lead = (slice(None),) * axis
    with (
        tempfile.TemporaryDirectory() as folder,
        patch("bindscope.core.store.manifest.CHUNK_BYTES", chunk_bytes),
        patch("os.fsync"),  # a busy disk would make this test slow
    ):
        manifest = Path(folder) / "x.json"
        layers = [str(i) for i in range(len(values))]
        with StoreWriter(
            Path(folder) / "x.zarr", manifest, spec="{}", code="", attributes={"layers": layers}
        ) as writer:
            writer.create("a", values.shape, dtype, axis)
            for piece in pieces:
                writer.write("a", values[(*lead, piece)])
        store = open_store(manifest)
        for index in (slice(None), part):
            actual = store.read("a", index)
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual, expected[(*lead, index)])
            if axis:
                layer = store.read("a", index, layer=layers[-1])
                np.testing.assert_array_equal(layer, expected[-1][index])
        assert verify(manifest) == []


@given(
    st.integers(1, 10**7),
    st.integers(1, 10**5),
    st.integers(1, 30),
    st.sampled_from(DTYPES),
    st.sampled_from([0, 1]),
)
def test_chunks_hold_megabytes_or_everything(n, width, layers, dtype, axis):
    shape = (*[layers] * axis, n, width)
    layout = ArrayLayout.plan(shape, dtype, axis)
    row = width * storage_dtype(dtype).itemsize
    rows = layout.chunk_rows
    together = layout.chunks[0] if axis else 1
    n_chunks = -(-n // rows)
    assert layout.chunks == (*[together] * axis, rows, width)
    if n * row >= 4 << 20:
        assert rows * row >= 4 << 20
        assert rows * row < (8 << 20) + 2 * row
        assert together == 1
    else:
        assert rows == n
    if together < layers * axis:
        assert together * rows * row >= 1 << 20
        assert (together - 1) * rows * row < 1 << 20
    assert n_chunks * rows - n < rows  # the last chunk holds scenes
    assert layout.chunk_bytes == together * rows * row
    files = -(-layers // together) if axis else 1
    assert layout.stored_bytes == files * n_chunks * (layout.chunk_bytes + 4)
    assert len(layout.chunk_names(n - 1, n)) == files
