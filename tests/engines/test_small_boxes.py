"""Boxes of small rows out of cached chunks, gathered point by point."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from counting import counted
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.box import Extent
from oocdata.engines.cache import cache
from oocdata.engines.gather import boxes as gathering
from oocdata.testing import boxes_of, sample_array


@st.composite
def cases(draw: Any) -> tuple[Any, ...]:
    """Return an array, a shape of chunks that hold whole rows, boxes, and where they go."""
    outer = draw(st.sampled_from([(300,), (5, 60), (40, 7)]))
    inner = draw(st.sampled_from([(), (1,), (3,), (2, 5)]))
    dtype = draw(st.sampled_from(["u1", "<i4", "<f8"]))
    chunk = tuple(draw(st.integers(1, length)) for length in outer)
    extent = []
    for length in outer:
        stride = draw(st.integers(1, 3))
        extent.append((draw(st.integers(1, (length - 1) // stride + 1)), stride))
    lengths, strides = zip(*extent, strict=True)
    box = Extent((*lengths, *inner), (*strides, *(1 for _ in inner)))
    seed = draw(st.integers(0, 99))
    rng = np.random.default_rng(seed)
    count = draw(st.integers(1, 40))
    ends = [n - span + 1 for n, span in zip((*outer, *inner), box.spans, strict=True)]
    origins = rng.integers(0, ends, (count, len(ends)))
    return sample_array((*outer, *inner), dtype), chunk, box, origins, draw(st.booleans()), seed


@given(case=cases(), out_dtype=st.sampled_from([None, "f8"]), swapped=st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_boxes(case: tuple[Any, ...], out_dtype: str | None, swapped: bool) -> None:
    array, chunk, extent, origins, scattered, seed = case
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gathering, "_POINTS_AT_ONCE", 50)
        source = counted(array, *chunk, *array.shape[len(chunk) :])[0].source
        expected = boxes_of(array, origins, extent)
        places = np.random.default_rng(seed).permutation(2 * len(origins))[: len(origins)]
        shape = (2 * len(origins) if scattered else len(origins), *extent.lengths)
        out = np.full(shape, 77, out_dtype or array.dtype)
        if swapped and out.ndim > 1:
            out = out.swapaxes(0, 1).copy().swapaxes(0, 1)
        last = np.array(array.shape) - extent.spans  # its chunk is decoded first
        source.read(last[None], extent, np.empty((1, *extent.lengths), array.dtype))
        source.read(origins, extent, out, places if scattered else None)
        assert_array_equal(out[places] if scattered else out, expected)
        left = np.delete(out, places, axis=0) if scattered else np.empty(0)
        assert (left == 77).all()


def test_patches_that_chunks_cut_take_little_memory() -> None:
    array = sample_array((40, 64, 64), "<i4")
    source = counted(array, 20, 8, 16)[0].source
    origins = np.random.default_rng(0).integers(0, [40, 33, 33], (1000, 3))
    out = np.empty((1000, 1, 32, 32), "<i4")
    source.read(origins[:10], Extent.of((1, 32, 32)), out[:10])
    tracemalloc.start()
    source.read(origins, Extent.of((1, 32, 32)), out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_array_equal(out, boxes_of(array, origins, Extent.of((1, 32, 32))))
    assert peak < 2 * out.nbytes  # the places of all numbers took 18 times as much


def test_more_chunks_than_may_be_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    array = sample_array((4000, 3), "<i4")
    view, decoded = counted(array, 100, 3)
    monkeypatch.setattr(cache, "budget", lambda: 20 * 1200)
    cache.forget()
    starts = np.random.default_rng(0).permutation(3990)[:500]
    assert_array_equal(view.windows(4).take(starts), array[starts[:, None] + np.arange(4)])
    assert decoded.total() == 40
